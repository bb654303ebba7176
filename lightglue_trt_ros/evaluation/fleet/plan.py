"""How every recording of a fleet is evaluated: one set of options of evaluate_bag, and the key that results are kept under."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...engines.engine_store import MANIFEST, engine_dir_of
from ...networks.models import identify_pair
from ...utils.errors import ConfigError
from .versions import Installation, installation, short

FILES = ('camera', 'camera_in_body', 'mask')  # options that name files, which every worker must see


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

    def differences(self, other: EvaluationPlan) -> list[str]:
        """What `other`, the same settings elsewhere, has differently, one line each."""
        named = {name: (self.contents.get(name, ''), other.contents.get(name, '')) for name in (*self.contents, *other.contents)}
        return self.installed.differences(other.installed) + [
            f'{name} {short(there)}, not {short(here)}' for name, (here, there) in sorted(named.items()) if here != there]

    def fell_back(self, descriptions: Iterable[str]) -> bool:
        """Whether `auto` took ONNX Runtime, as what ran describes itself, where there are a GPU and engines of that shape."""
        if self.settings.get('backend') != 'auto' or not self.installed.gpu:
            return False
        shapes = [re.search(r'^ONNX Runtime .* (\d+)x(\d+), K = (\d+)', each) for each in descriptions]
        engines = [f'-{shape[2]}x{shape[1]}-k{shape[3]}-fp' for shape in shapes if shape]
        return any(each in name for each in engines for name in self.contents)

    def key(self, fingerprint: str) -> str:
        """sha256 of all that a result depends on; weights and files count by what is in them, not by where they are."""
        settings = {name: value for name, value in self.settings.items() if name not in ('weights', 'engine_dir', *FILES)}
        installed = self.installed._replace(weights='')
        material = [fingerprint, installed, settings, self.contents]
        return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()


def plan_here(settings: dict[str, Any]) -> EvaluationPlan:
    """The plan on this machine, a worker's: with its libraries, its GPU, and the files and engines that it sees.

    Raises ConfigError, WeightsError.
    """
    return make_plan(settings, installation(str(settings.get('weights', '')), str(settings.get('backend', 'auto'))))


def make_plan(settings: dict[str, Any], installed: Installation) -> EvaluationPlan:
    """Settings as they are kept: paths absolute, values as text that evaluate_bag reads. Raises ConfigError for a missing file."""
    kept = {name: _text(value) for name, value in settings.items() if value not in (None, '', (), [])}
    contents = {}
    for name in FILES:
        if name in kept:
            path = Path(kept[name]).expanduser().absolute()
            try:
                contents[name] = _sha256(path)
            except OSError as error:
                raise ConfigError(f'--{name.replace("_", "-")} {path} cannot be read: {error.strerror}') from None
            kept[name] = str(path)
    if '/' in kept.get('weights', ''):
        kept['weights'] = str(Path(kept['weights']).expanduser().absolute())
    if kept.get('backend') != 'onnxruntime':
        contents |= _manifests(engine_dir_of(kept.get('engine_dir', '')))
    for word in kept.get('compare', '').split(','):
        contents |= _manifests(Path(word).expanduser().parent) if (Path(word).expanduser() / MANIFEST).is_file() else {}
        if word.startswith('weights='):
            pair = identify_pair(word.removeprefix('weights='))
            contents[word] = f'{pair.extractor_sha256} {pair.matcher_sha256}'
    return EvaluationPlan(kept, installed, contents)


def _text(value: Any) -> str:
    return ','.join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _manifests(folder: Path) -> dict[str, str]:
    """The engines and calibrations of a folder: what each is stands in its manifest."""
    return {f'engines {path.parent.name}': _sha256(path) for path in sorted(folder.glob(f'*/{MANIFEST}'))}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
