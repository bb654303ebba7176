"""Calibrations in the engine directory: written whole, and found again for the shape and weights that they were made for.

A calibration is a directory of its own beside the bundles, made once and used by all of them. One that did not pass its gate leaves
its figures and no more.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from lightglue_trt_ros import __version__

from ..calibration import Calibration
from ..config import EngineSpec
from ..errors import EngineError, EngineMismatchError
from ..weights.pairs import PairIdentity
from .bundle import MANIFEST, default_engine_dir, drafting
from .manifest import without_fields

SCHEMA = 2
KIND = 'calibration'
TENSORS, GRAPH, PLOT = 'calibration.safetensors', 'matcher.fp8.onnx', 'frontier.png'


@dataclass(frozen=True)
class Identity:
    """What a calibration is for. Flat: each field is compared and named by itself."""

    image_height: int
    image_width: int
    max_keypoints: int
    weights: str  # the pair's name
    extractor_sha256: str  # of its files
    matcher_sha256: str
    weights_choice: str = dataclasses.field(compare=False)  # the setting that gave the pair: its name, or its folder there

    @classmethod
    def of(cls, spec: EngineSpec, pair: PairIdentity) -> Identity:
        """What a calibration of `spec`'s shapes for the weights of `pair` is."""
        return cls(spec.image_height, spec.image_width, spec.max_keypoints, pair.name, pair.extractor_sha256, pair.matcher_sha256,
                   pair.choice)

    @property
    def name(self) -> str:
        """The directory's name."""
        return f'{KIND}-{self.image_height}x{self.image_width}-k{self.max_keypoints}'

    def differences(self, wanted: Identity) -> list[str]:
        """The fields in which this is not the wanted one, each with both values."""
        return [f'{name.replace("_", " ")}: the calibration has {mine}, needed is {getattr(wanted, name)}'
                for name, mine in dataclasses.asdict(self).items() if name != 'weights_choice' and mine != getattr(wanted, name)]


@dataclass(frozen=True)
class Manifest:
    """manifest.json of a calibration."""

    identity: Identity
    passed: bool
    settings: Mapping[str, Any]  # what was asked for, and content hashes of the recordings: equal ones give an equal calibration
    provenance: Mapping[str, Any]  # recordings, frames, pairs, weights, versions, scales
    gate: Mapping[str, Any]  # limits, verdicts, figures
    frontier: list[Any]  # of the search; empty: none ran
    files: Mapping[str, str]  # name -> sha256
    package_version: str = __version__
    schema: int = SCHEMA
    kind: str = KIND

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False) + '\n'

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Raises ValueError, which says what is wrong."""
        values: Any = json.loads(text)
        if not isinstance(values, dict) or values.get('kind') != KIND:
            raise ValueError('it is no manifest of a calibration')
        if values.get('schema') != SCHEMA:
            raise ValueError(f'its schema is {values.get("schema")}, this version reads {SCHEMA}'
                             + without_fields(values.get('identity'), Identity))
        try:
            values['identity'] = Identity(**values['identity'])
            return cls(**values)
        except TypeError as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True)
class StoredCalibration:
    """A calibration that passed its gate, for the shape and weights that were asked for."""

    path: Path
    manifest: Manifest

    def load(self) -> Calibration:
        """Raises EngineError where the file is damaged."""
        self._check(TENSORS)
        return Calibration.load(self.path / TENSORS)

    @property
    def graph(self) -> Path:
        """The matcher as a whole in FP8. Raises EngineError where the file is damaged."""
        return self._check(GRAPH)

    def _check(self, name: str) -> Path:
        path = self.path / name
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise EngineError(f'{path} cannot be read ({error.strerror}): calibrate again with\n'
                              f'{_command(self.manifest.identity)}') from error
        if found != self.manifest.files[name]:
            raise EngineError(f'{path} is damaged: its sha256 is {found}, the manifest has {self.manifest.files[name]}; '
                              f'calibrate again with\n{_command(self.manifest.identity)}')
        return path


def write_calibration(engine_dir: Path, manifest: Manifest, files: Mapping[str, bytes], say: Callable[[str], None]) -> Path:
    """Put `files` and the manifest, which gets their checksums, into their place, whole or not at all; what was there goes.

    Raises EngineError when the disk fails.
    """
    with drafting(engine_dir, manifest.identity.name, say) as draft:
        for name, data in files.items():
            draft.write(name, data)
        return draft.publish(cast(Any, dataclasses.replace(manifest, files=dict(draft.files)))).path


def find_calibration(engine_dir: Path, spec: EngineSpec, pair: PairIdentity) -> StoredCalibration:
    """The calibration for these shapes (`spec`'s precision does not matter) and the weights of `pair`.

    Files are checked as they are read. Raises EngineMismatchError, naming each field that differs, where there is one for other
    weights or, in its absence, for other shapes; EngineError where there is none, it is damaged, or it did not pass its gate.
    """
    wanted = Identity.of(spec, pair)
    path, command = engine_dir / wanted.name, _command(wanted, engine_dir)
    manifest = _read(path, command)
    if manifest is None:
        others = [found.identity for other in sorted(engine_dir.glob(f'{KIND}-*')) if (found := read_manifest(other))]
        if not others:
            raise EngineError(f'there is no calibration in {path}: make one with\n{command}')
        lines = [f'{other.name}: {"; ".join(other.differences(wanted))}' for other in others]
        raise EngineMismatchError('\n  '.join([f'there is no calibration in {path}, only others:', *lines])
                                  + f'\nmake one with\n{command}')
    if differences := manifest.identity.differences(wanted):
        raise EngineMismatchError('\n  '.join([f'the calibration in {path} is for something else:', *differences])
                                  + f'\ncalibrate again with\n{command}')
    if not manifest.passed:
        raise EngineError(f'the calibration in {path} did not pass its gate (its {MANIFEST} has the figures): use fp16, or '
                          f'calibrate on more of what the robot sees:\n{command}')
    return StoredCalibration(path, manifest)


def has_calibration(engine_dir: Path, spec: EngineSpec, pair: PairIdentity) -> bool:
    """Whether `find_calibration` finds one."""
    try:
        find_calibration(engine_dir, spec, pair)
    except EngineError:
        return False
    return True


def read_manifest(path: Path) -> Manifest | None:
    """The manifest of the calibration in `path`; None where there is none that can be read."""
    return _read(path, '', quiet=True)


def _read(path: Path, command: str, quiet: bool = False) -> Manifest | None:
    try:
        return Manifest.from_json((path / MANIFEST).read_text(encoding='utf-8'))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # ValueError is JSON's and Unicode's too
        if quiet:
            return None
        raise EngineError(f'{path / MANIFEST} cannot be used: {error}; calibrate again with\n{command}') from error


def _command(wanted: Identity, engine_dir: Path | None = None) -> str:
    words = ['ros2', 'run', 'lightglue_trt_ros', 'quantize', '--height', wanted.image_height, '--width', wanted.image_width,
             '--max-keypoints', wanted.max_keypoints, '--weights', wanted.weights_choice]
    if engine_dir is not None and engine_dir != default_engine_dir():
        words += ['--engine-dir', engine_dir]
    return f'{shlex.join(map(str, words))} --calibration BAG'
