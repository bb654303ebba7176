"""What a bundle is: its identity, which has to fit the machine, and its manifest."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightglue_trt_ros import __version__

from ..config import EngineSpec
from ..depth import Depth
from ..errors import ConfigError
from ..weights.pairs import PairIdentity
from .machine import Machine

if TYPE_CHECKING:
    from .adapter import TensorRT

SCHEMA = 3


def networks_of(depth: Depth) -> tuple[str, ...]:
    """The graphs and engines of a bundle, by name."""
    return ('extractor', *depth.graphs)


def files_of(depth: Depth) -> tuple[str, ...]:
    """The files of a bundle beside its manifest."""
    return (*(f'{network}.{kind}' for kind in ('onnx', 'plan') for network in networks_of(depth)), 'timing.cache')


@dataclass(frozen=True)
class Identity:
    """What must agree between a bundle and who wants to run it. Its fields are flat: each is compared and named by itself."""

    image_height: int
    image_width: int
    max_keypoints: int
    extractor_precision: str
    matcher_precision: str
    weights: str  # the pair's name
    extractor_sha256: str  # of its files
    matcher_sha256: str
    tensorrt: str  # tensorrt or tensorrt_rtx
    tensorrt_version: str
    compute_capability: str  # 8.7
    gpu: str  # empty: any of the compute capability
    multiprocessors: int  # tells GPUs of one name apart; 0: any
    weights_choice: str = dataclasses.field(compare=False)  # the setting that gave the pair: its name, or its folder there

    @classmethod
    def of(cls, spec: EngineSpec, pair: PairIdentity, tensorrt: TensorRT, machine: Machine) -> Identity:
        """What a bundle of `spec` with the weights of `pair` is, when TensorRT builds it for `machine`."""
        return cls(spec.image_height, spec.image_width, spec.max_keypoints, 'fp32' if spec.precision == 'fp32' else 'fp16',
                   spec.precision, pair.name, pair.extractor_sha256, pair.matcher_sha256, tensorrt.name, tensorrt.version,
                   '{}.{}'.format(*machine.compute_capability), machine.gpu, machine.multiprocessors, pair.choice)

    @property
    def spec(self) -> EngineSpec:
        return EngineSpec(self.image_height, self.image_width, self.max_keypoints, self.matcher_precision)

    def differences(self, wanted: Identity) -> list[str]:
        """The fields in which this bundle is not the wanted one, each with both values."""
        free = {'weights_choice', *(() if self.multiprocessors else ('gpu', 'multiprocessors'))}
        return [f'{name.replace("_", " ")}: the bundle has {mine}, needed is {getattr(wanted, name)}'
                for name, mine in dataclasses.asdict(self).items() if name not in free and mine != getattr(wanted, name)]


@dataclass(frozen=True)
class Manifest:
    """manifest.json."""

    identity: Identity
    files: dict[str, str]  # name -> sha256
    build_seconds: dict[str, float]  # by network
    layers: dict[str, dict[str, int]]  # by network: precision -> number of layers
    gate: dict[str, Any]  # verdict, frames, figures
    ends: tuple[int, ...]  # of the matcher's stages: layers after which it may stop; one: it runs them all
    package_version: str = __version__
    schema: int = SCHEMA

    @property
    def depth(self) -> Depth:
        return Depth(self.ends)

    def to_json(self) -> str:
        return json.dumps({'schema': self.schema, **dataclasses.asdict(self)}, indent=1, allow_nan=False) + '\n'

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Raises ValueError, which says what is wrong."""
        values: Any = json.loads(text)
        if not isinstance(values, dict) or type(values.get('schema')) is not int:
            raise ValueError('it has no schema number')
        if values['schema'] != SCHEMA:
            age = 'a newer' if values['schema'] > SCHEMA else 'an older'
            raise ValueError(f'{age} version of this package wrote it: its schema is {values["schema"]}, this one reads {SCHEMA}'
                             + without_fields(values.get('identity'), Identity))
        types: dict[str, type] = {'identity': dict, 'files': dict, 'build_seconds': dict, 'layers': dict, 'gate': dict,
                                  'package_version': str, 'schema': int, 'ends': list}
        _check_types(values, types)
        _check_types(values['identity'], {entry.name: {'int': int, 'str': str}[str(entry.type)]
                                          for entry in dataclasses.fields(Identity)})
        values['ends'] = tuple(values['ends'])
        if missing := [name for name in files_of(_depth(values['ends'])) if not isinstance(values['files'].get(name), str)]:
            raise ValueError(f'it has no checksum of {", ".join(missing)}')
        values['identity'] = Identity(**values['identity'])
        return cls(**values)


def without_fields(identity: Any, kind: Any) -> str:
    """For the message about an old manifest: the fields of the identity `kind` that it does not have; empty where it has all."""
    missing = [entry.name for entry in dataclasses.fields(kind) if not isinstance(identity, dict) or entry.name not in identity]
    return f'; it does not say: {", ".join(missing)}' if missing else ''


def _depth(ends: Any) -> Depth:
    try:
        return Depth(ends)
    except (ConfigError, TypeError) as error:
        raise ValueError(f'ends: {error}') from None


def _check_types(values: Any, types: dict[str, type]) -> None:
    if wrong := [name for name in {*types, *values} if type(values.get(name)) is not types.get(name)]:
        raise ValueError(f'{", ".join(sorted(wrong))}: missing, unknown or of the wrong type')
