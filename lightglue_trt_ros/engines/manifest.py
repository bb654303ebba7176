"""The manifest of engines of one shape, or of an FP8 calibration: what it is, who may use it, and the checksums of its files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..core.config import EngineSpec
from ..core.early_exit import EarlyExits
from ..networks.architecture import EXTRACTOR
from ..networks.fp8_calibration import Calibration
from ..networks.graph_cache import code_sha256
from ..networks.models import ModelIdentity
from ..networks.weight_store import cache_dir
from ..utils.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from .gpu_info import Machine
    from .tensorrt_api import TensorRT

SCHEMA = 7
MANIFEST = 'manifest.json'
TIMING_CACHE = 'timing.cache'
TENSORS, GRAPH, PLOT = 'calibration.safetensors', 'matcher.fp8.onnx', 'frontier.png'  # of a calibration
ENGINES, CALIBRATION = 'engines', 'calibration'
PASSED, FAILED, NOT_RUN = 'passed', 'failed', 'not run'
RECORDS: dict[str, dict[str, type]] = {  # what the record of each kind says, at least
    ENGINES: {'build_seconds': dict, 'layers': dict},
    CALIBRATION: {'settings': dict, 'flops_share': float, 'provenance': dict, 'frontier': list}}
NOUNS = {ENGINES: 'engine set', CALIBRATION: 'FP8 calibration'}
_OF_THE_MAKER = ('gpu', 'multiprocessors', 'calibration_sha256')  # where an artifact leaves them empty it fits any
_IDENTITY_TYPES = {'int': int, 'str': str, 'tuple[int, ...]': list, 'dict[str, str]': dict}


@dataclass(frozen=True)
class Identity:
    """Properties in which an artifact must equal the wanted one; what the latter leaves empty may be anything.

    Flat: each field is compared and named by itself.
    """

    kind: str  # engines or calibration
    image_height: int
    image_width: int
    max_keypoints: int
    weights: str  # the model's name
    extractor_sha256: str  # of its files
    matcher_sha256: str
    extractor_precision: str = ''  # from here to `ends` of engines alone
    matcher_precision: str = ''
    tensorrt: str = ''  # tensorrt or tensorrt_rtx
    tensorrt_version: str = ''
    compute_capability: str = ''  # 8.7
    gpu: str = ''  # empty: any of the compute capability
    multiprocessors: int = 0  # tells GPUs of one name apart; 0: any
    ends: tuple[int, ...] = ()  # of the matcher's stages: layers after which it may stop
    graphs: dict[str, str] = field(default_factory=dict)  # sha256 of the ONNX files, by network
    calibration_sha256: str = ''  # of a calibration's tensors, and of those that FP8 engines were made with
    package_version: str = __version__
    graph_code: str = field(default_factory=code_sha256)  # sha256 of the code that wrote the graphs
    gate_verdict: str = PASSED
    weights_choice: str = field(default='', compare=False)  # the setting that gave the model: its name, or its folder there

    @classmethod
    def of_engines(cls, spec: EngineSpec, model: ModelIdentity, tensorrt: TensorRT, machine: Machine, **more: Any) -> Identity:
        """Engines of `spec` with the weights of `model` that TensorRT builds for `machine`; `more` are further fields."""
        return dataclasses.replace(
            cls.of_calibration(spec, model), kind=ENGINES, extractor_precision='fp32' if spec.precision == 'fp32' else 'fp16',
            matcher_precision=spec.precision, tensorrt=tensorrt.name, tensorrt_version=tensorrt.version, gpu=machine.gpu,
            compute_capability='{}.{}'.format(*machine.compute_capability), multiprocessors=machine.multiprocessors, **more)

    @classmethod
    def of_calibration(cls, spec: EngineSpec, model: ModelIdentity, **more: Any) -> Identity:
        """A calibration of `spec`'s shapes, whatever its precision, for the weights of `model`."""
        return cls(CALIBRATION, spec.image_height, spec.image_width, spec.max_keypoints, model.name, model.extractor_sha256,
                   model.matcher_sha256, weights_choice=model.choice, **more)

    @property
    def spec(self) -> EngineSpec:
        """Of engines."""
        return EngineSpec(self.image_height, self.image_width, self.max_keypoints, self.matcher_precision)

    @property
    def early_exits(self) -> EarlyExits:
        """Of engines."""
        return EarlyExits(self.ends)

    @property
    def networks(self) -> tuple[str, ...]:
        """Of engines, by name; they are cut at each attention where that is a kernel of ours."""
        return (EXTRACTOR, *self.early_exits.graphs(self.early_exits.blocks[0] in self.graphs))

    @property
    def name(self) -> str:
        """The folder's name: ours-480x640-k1024-fp16, ours-480x640-k1024-calibration."""
        model = ModelIdentity(self.weights, self.extractor_sha256, self.matcher_sha256, self.weights_choice)
        return f'{model.label}-{self._shape}-{self.matcher_precision if self.kind == ENGINES else CALIBRATION}'

    @property
    def former_name(self) -> str:
        """Former name of an artifact for these shapes, without the weights."""
        return f'superpoint-{self._shape}-{self.matcher_precision}' if self.kind == ENGINES else f'{CALIBRATION}-{self._shape}'

    @property
    def _shape(self) -> str:
        return f'{self.image_height}x{self.image_width}-k{self.max_keypoints}'

    @property
    def files(self) -> tuple[str, ...]:
        """Its files besides the manifest; a calibration that failed leaves its figures and no more."""
        if self.kind == ENGINES:
            return (*(f'{network}.{kind}' for kind in ('onnx', 'plan') for network in self.networks), TIMING_CACHE)
        return (TENSORS, GRAPH) if self.gate_verdict == PASSED else ()

    def command(self, engine_dir: Path) -> str:
        """The command that makes it."""
        engines = self.kind == ENGINES
        words: list[str | int | Path] = ['ros2', 'run', 'lightglue_trt_ros', 'build_engines' if engines else 'quantize']
        words += ['--height', self.image_height, '--width', self.image_width, '--max-keypoints', self.max_keypoints]
        words += ['--precision', self.matcher_precision] if engines else []
        words += ['--weights', self.weights_choice]
        words += ['--engine-dir', engine_dir] if engine_dir != engine_dir_of() else []
        words += ['--flavour', 'rtx'] if self.tensorrt == 'tensorrt_rtx' else []
        any_gpu = self.compute_capability and not self.multiprocessors
        words += ['--target-sm', self.compute_capability.replace('.', '')] if any_gpu else []
        return shlex.join(map(str, words)) + ('' if engines else ' --calibration BAG')

    def differences(self, wanted: Identity) -> list[str]:
        """The fields in which this artifact is not the wanted one, each with both values.

        Of another version, whose graphs may differ in anything, the version stands for its code and its graphs.
        """
        differences, same_version = [], self.package_version == wanted.package_version
        if other_code := not same_version or (self.graph_code != wanted.graph_code and bool(wanted.graph_code)):
            differences.append(f'it was made by {"other code of " * same_version}version {self.package_version}'
                               + f', this is {wanted.package_version}' * (not same_version))
        for entry in dataclasses.fields(self):
            if entry.name in ('package_version', 'graph_code') or (entry.name == 'graphs' and other_code):
                continue
            mine, needed = getattr(self, entry.name), getattr(wanted, entry.name)
            anybody = not needed or (not mine and entry.name in _OF_THE_MAKER)
            if entry.name == 'gate_verdict':  # built for any GPU, on a machine that could not run it
                anybody |= mine == NOT_RUN and self.kind == ENGINES and not self.multiprocessors
            if not entry.compare or anybody or mine == needed:
                continue
            if entry.name == 'graphs':
                others = [network for network in needed if mine.get(network) != needed[network]]
                differences += [f'graphs: the {NOUNS[self.kind]} has another {" and another ".join(others)}'] if others else []
            else:
                differences.append(f'{entry.name.replace("_", " ")}: the {NOUNS[self.kind]} has {mine}, needed is {needed}')
        return differences


@dataclass(frozen=True)
class Artifact:
    """Engines or a calibration whose manifest was read; all but the path stands in manifest.json."""

    path: Path
    identity: Identity
    files: dict[str, str]  # name -> sha256
    gate: dict[str, Any]  # limits and figures
    record: dict[str, Any]  # how it was made: see RECORDS

    def to_json(self) -> str:
        values = dataclasses.asdict(self)
        del values['path']
        return json.dumps({'schema': SCHEMA, **values}, indent=1, allow_nan=False) + '\n'

    @classmethod
    def of_json(cls, path: Path, text: str) -> Artifact:
        """Raises ValueError, which says what is wrong, and names the fields that are missing."""
        values: Any = json.loads(text)
        if not isinstance(values, dict) or type(values.get('schema')) is not int:
            raise ValueError('it has no schema number')
        if (schema := values.pop('schema')) != SCHEMA:
            age = 'a newer' if schema > SCHEMA else 'an older'
            raise ValueError(f'{age} version of this package wrote it: its schema is {schema}, this one reads {SCHEMA}')
        _check_fields(values, {'identity': dict, 'files': dict, 'gate': dict, 'record': dict})
        _check_fields(values['identity'], {entry.name: _IDENTITY_TYPES[str(entry.type)] for entry in dataclasses.fields(Identity)})
        identity = Identity(**{**values['identity'], 'ends': tuple(values['identity']['ends'])})
        if identity.kind not in RECORDS or identity.gate_verdict not in (PASSED, FAILED, NOT_RUN):
            raise ValueError(f'it is of {identity.kind!r}, with the verdict {identity.gate_verdict!r}: neither is known')
        _check_fields(values['record'], RECORDS[identity.kind], more=True)
        try:
            names = identity.files
        except (ConfigError, TypeError) as error:
            raise ValueError(f'ends: {error}') from None
        if missing := [name for name in names if not isinstance(values['files'].get(name), str)]:
            raise ValueError(f'it has no checksum of {", ".join(missing)}')
        if identity.kind == ENGINES and identity.graphs != graphs_of(values['files']):
            raise ValueError('its graphs are not those of its files')
        if TENSORS in names and identity.calibration_sha256 != values['files'][TENSORS]:
            raise ValueError(f'its calibration_sha256 is not that of {TENSORS}')
        return cls(path, **{**values, 'identity': identity})

    @classmethod
    def of_folder(cls, path: Path) -> Artifact:
        """Raises OSError, and ValueError where the manifest cannot be used."""
        return cls.of_json(path, (path / MANIFEST).read_text(encoding='utf-8'))

    def read(self, name: str) -> bytes:
        """One of its files, its checksum compared. Raises EngineError."""
        path = self.path / name
        again = f'; make it again:\n{self.identity.command(self.path.parent)}'
        try:
            data = path.read_bytes()
        except OSError as error:
            raise EngineError(f'{path} cannot be read ({error.strerror})', again) from error
        if (actual := hashlib.sha256(data).hexdigest()) != self.files[name]:
            raise EngineError(f'{path} is damaged: {len(data)} bytes of sha256 {actual} where the manifest has '
                              f'{self.files[name]}', again)
        return data

    def verify(self) -> None:
        """Read every file. Raises EngineError."""
        for name in self.identity.files:
            self.read(name)

    def plans(self) -> dict[str, bytes]:
        """All plans by network; that their graphs are whole is checked too. Raises EngineError."""
        for network in self.identity.networks:
            self.read(f'{network}.onnx')
        return {network: self.read(f'{network}.plan') for network in self.identity.networks}

    def calibration(self) -> Calibration:
        """Of a calibration. Raises EngineError."""
        return Calibration.of_content(self.read(TENSORS))


def engine_dir_of(setting: str = '') -> Path:
    """The folder that the setting `engine_dir` names; empty: `engines` in the cache that also holds the weights."""
    return Path(setting).expanduser() if setting else cache_dir() / 'engines'


def graphs_of(files: dict[str, str]) -> dict[str, str]:
    return {name.removesuffix('.onnx'): checksum for name, checksum in files.items() if name.endswith('.onnx')}


def _check_fields(values: dict[str, Any], types: dict[str, type], more: bool = False) -> None:
    names = {*types} if more else {*types, *values}
    if wrong := [name for name in names if type(values.get(name)) is not types.get(name)]:
        raise ValueError(f'{", ".join(sorted(wrong))}: missing, unknown or of the wrong type')
