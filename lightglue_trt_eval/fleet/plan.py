"""How each recording of a fleet is evaluated: the options, what is installed, and the key under which a result is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from lightglue_trt_ros import __version__
from lightglue_trt_ros.backends.onnxruntime import import_runtime, providers
from lightglue_trt_ros.datasets.calibration_choices import split_choice
from lightglue_trt_ros.engines.gpu_info import probe
from lightglue_trt_ros.engines.manifest import MANIFEST, engine_dir_of
from lightglue_trt_ros.engines.tensorrt_api import open_tensorrt
from lightglue_trt_ros.networks.models import NAMES, identify_model, other_files
from lightglue_trt_ros.utils.errors import ConfigError, EngineError
from lightglue_trt_ros.utils.processes import PACKAGE, called_elsewhere

from ..options import OWN_DEPTH_IMAGES

FILES = ('camera', 'camera_in_body', 'mask')  # options that name files, which every worker must see
PACKAGES = (PACKAGE, Path(__file__).resolve().parents[1])  # the robot's and this one
CODE = ('.py', '.cu', '.ptx', '.jinja', '.js', '.json')  # suffixes of files that figures and pages are made by


class Installation(NamedTuple):
    """Versions and hardware that a result was made with."""

    build: str
    weights: str  # the model's name
    extractor_sha256: str
    matcher_sha256: str
    libraries: str = ''  # with their versions
    gpu: str = ''  # and the TensorRT for it; empty: TensorRT has none, or is not asked for


def short(value: str) -> str:
    """For people: of a checksum its beginning, `none` of nothing."""
    return value[:12] if len(value) == 64 and ' ' not in value else value or 'none'


@lru_cache(maxsize=1)
def build() -> str:
    """The version of the packages and the beginning of the sha256 of CODE: 0.1.0-3f2a9c01. Equal copies have the same."""
    total = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted(path for path in package.rglob('*') if path.suffix in CODE):
            total.update(path.relative_to(package.parent).as_posix().encode() + b'\0' + path.read_bytes())
    return f'{__version__}-{total.hexdigest()[:8]}'


def installation(weights: str, backend: str = 'auto') -> Installation:
    """Versions installed here, the model that the setting `weights` names, and the GPU where `backend` may use it.

    Raises ConfigError, WeightsError.
    """
    model = identify_model(weights)
    return Installation(build(), model.name, model.extractor_sha256, model.matcher_sha256, _libraries(),
                        '' if backend == 'onnxruntime' else _gpu())


@lru_cache(maxsize=1)
def _libraries() -> str:
    try:
        names = ', '.join(provider.removesuffix('ExecutionProvider') for provider in providers())
        runtime = f'ONNX Runtime {import_runtime().__version__} ({names})'
    except EngineError:
        runtime = 'no ONNX Runtime'
    return f'OpenCV {cv2.__version__}, NumPy {np.__version__}, {runtime}'


@lru_cache(maxsize=1)
def _gpu() -> str:
    return called_elsewhere(describe_gpu)  # no context is made in a process that goes on


def describe_gpu() -> str:
    """The GPU and the TensorRT that `backend: auto` would take here; empty where it would take neither."""
    try:
        machine, tensorrt = probe(), open_tensorrt()
    except Exception:  # a broken installation fails in many ways, as in selection: it is none
        return ''
    capability = '.'.join(map(str, machine.compute_capability))
    return (f'{machine.gpu}, compute capability {capability}, {machine.multiprocessors} multiprocessors, driver for CUDA '
            f'{machine.driver}, {tensorrt.name} {tensorrt.version}')


@dataclass(frozen=True)
class EvaluationPlan:
    """`settings` are options of evaluate_bag by name (max_keypoints for --max-keypoints), all that have a value."""

    settings: dict[str, Any]
    installed: Installation
    contents: dict[str, str]  # sha256 of what the settings name: files, engines

    @property
    def words(self) -> list[str]:
        """The options as evaluate_bag takes them."""
        return [f'--{name.replace("_", "-")}={value}' for name, value in self.settings.items()]

    @property
    def shown(self) -> dict[str, str]:
        """The settings for people."""
        return in_words(self.settings)

    def differences(self, other: EvaluationPlan) -> list[str]:
        """Differences of `other`, the same settings elsewhere, one line each; the model's name does not count."""
        labels = ('package', 'weights', "the extractor's sha256", "the matcher's sha256", 'libraries', 'GPU')
        mine, theirs = (dict(zip(labels, each.installed, strict=True)) | each.contents for each in (self, other))
        return [f'{name} {short(theirs.get(name, ""))}, not {short(mine.get(name, ""))}' for name in sorted({*mine, *theirs})
                if name != 'weights' and mine.get(name) != theirs.get(name)]

    def fell_back(self, used: Iterable[dict[str, Any] | None]) -> bool:
        """Whether `auto` took ONNX Runtime where there are a GPU and engines of that shape; `used` are those that ran."""
        if self.settings.get('backend') != 'auto' or not self.installed.gpu:
            return False
        shapes = [f'-{each["image_height"]}x{each["image_width"]}-k{each["max_keypoints"]}-fp' for each in used
                  if each is not None and each['backend'] == 'onnxruntime']
        return any(shape in name for shape in shapes for name in self.contents)

    def key(self, fingerprint: str) -> str:
        """sha256 of all that a result depends on; weights and files count by what is in them, not by where they are."""
        settings = {name: value for name, value in self.settings.items() if name not in ('weights', 'engine_dir', *FILES)}
        installed = self.installed._replace(weights='')
        material = [fingerprint, installed, settings, self.contents]
        return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()


def in_words(settings: dict[str, Any]) -> dict[str, str]:
    """Settings of a plan by name, for people."""
    own_depth = settings.get('depth_topic') == OWN_DEPTH_IMAGES
    return {'depth' if own_depth and name == 'depth_topic' else name:
            "the recording's own depth images" if own_depth and name == 'depth_topic' else str(value)
            for name, value in settings.items()}


def plan_here(settings: dict[str, Any]) -> EvaluationPlan:
    """The plan on this machine, a worker's: with its libraries, its GPU, and the files and engines that it sees.

    Raises ConfigError, WeightsError.
    """
    return make_plan(settings, installation(str(settings.get('weights', '')), str(settings.get('backend', 'auto'))))


def make_plan(settings: dict[str, Any], installed: Installation) -> EvaluationPlan:
    """Settings as they are kept: paths absolute, values as text that evaluate_bag reads. Raises ConfigError for a missing file."""
    kept = {name: ','.join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            for name, value in settings.items() if value not in (None, '', (), [])}
    contents = {}
    for name in FILES:
        if name in kept:
            path = Path(kept[name]).expanduser().absolute()
            file, camera = split_choice(path)
            try:
                contents[name] = _sha256(file) + f' {camera}' * bool(camera)
            except OSError as error:
                raise ConfigError(f'--{name.replace("_", "-")} {path} cannot be read: {error.strerror}') from None
            kept[name] = str(path)
    if choice := kept.get('weights', ''):
        kept['weights'] = choice if choice in NAMES else str(Path(choice).expanduser().absolute())
        contents |= {f'{name} of the weights': _sha256(path) for name, path in other_files(choice).items()}
    if kept.get('backend') != 'onnxruntime':
        contents |= _manifests(engine_dir_of(kept.get('engine_dir', '')))
    for word in kept.get('compare', '').split(','):
        contents |= _manifests(Path(word).expanduser().parent) if (Path(word).expanduser() / MANIFEST).is_file() else {}
        if word.startswith('weights='):
            model = identify_model(word.removeprefix('weights='))
            others = map(_sha256, other_files(model.choice).values())
            contents[word] = ' '.join([model.extractor_sha256, model.matcher_sha256, *others])
    return EvaluationPlan(kept, installed, contents)


def _manifests(folder: Path) -> dict[str, str]:
    """The engines and calibrations of a folder: what each is stands in its manifest."""
    return {f'engines {path.parent.name}': _sha256(path) for path in sorted(folder.glob(f'*/{MANIFEST}'))}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
