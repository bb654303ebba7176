"""Engine sets and FP8 calibrations as the store writes them, with made-up content."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.engines.engine_store import Draft, drafting
from lightglue_trt_ros.engines.gpu_info import Machine
from lightglue_trt_ros.engines.manifest import Artifact, Identity
from lightglue_trt_ros.networks.models import ModelIdentity

SPEC = EngineSpec(480, 640, 1024, 'fp16')
ADA = Machine('NVIDIA RTX 2000 Ada', (8, 9), 22, 6000, 16380, '12.6', False)
TENSORRT: Any = SimpleNamespace(name='tensorrt', version='10.3.0')
OURS = ModelIdentity('ours', 'e' * 64, 'a' * 64, 'ours')
EARLY_EXITS = EarlyExits()
WANTED = Identity.of_engines(SPEC, OURS, TENSORRT, ADA, ends=EARLY_EXITS.ends)
CALIBRATION = Identity.of_calibration(SPEC, OURS)
GATE = {'frames': 'a recording', 'keypoint_overlap': 0.99}
RECORD = {'build_seconds': {'extractor': 1.5, 'matcher': 2.0}, 'layers': {'extractor': {'fp16': 30}}}


def networks_of(early_exits: EarlyExits, own_attention: bool = False) -> tuple[str, ...]:
    """The graphs and engines of an engine set, by name."""
    return ('extractor', *early_exits.graphs(own_attention))


def files_of(early_exits: EarlyExits, own_attention: bool = False) -> tuple[str, ...]:
    """The files of an engine set beside its manifest."""
    networks = networks_of(early_exits, own_attention)
    return (*(f'{network}.{kind}' for kind in ('onnx', 'plan') for network in networks), 'timing.cache')


FILES = files_of(EARLY_EXITS)


def fill(draft: Draft, identity: Identity = WANTED, cache: bytes = b'timings') -> Artifact:
    for name in FILES:
        draft.write(name, cache if name == 'timing.cache' else f'content of {name}'.encode() * 100)
    return draft.publish(identity, GATE, RECORD)


def put(folder: Path, identity: Identity = WANTED, cache: bytes = b'timings') -> Artifact:
    with drafting(folder, identity.name) as draft:
        return fill(draft, identity, cache)


def put_calibration(folder: Path, identity: Identity = CALIBRATION) -> Artifact:
    with drafting(folder, identity.name) as draft:
        for name in identity.files:
            draft.write(name, name.encode())
        return draft.publish(identity, {}, {'settings': {}, 'flops_share': 0.5, 'provenance': {}, 'frontier': []})
