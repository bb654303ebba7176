"""Calibration of an FP8 matcher: in which bases and around which centres it rounds its activations, and their range.

E4M3 is a floating-point format: it errs by a share of each value, so a scale, per tensor or per channel, hardly changes the error.
What changes it is where zero lies and along which axes the values are cut: see docs/fp8.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.types import Float32, Int32, UInt8
from . import e4m3
from .weights import parse

SCHEMA = 3
BLOCKS = ('self', 'cross')
PARTS = ('project', 'hidden', 'update')  # q, k, v; the FFN's two linears


def member(layer: int, block: str, part: str) -> str:
    """The name of a part that can be in FP8: layers.3.cross.hidden."""
    return f'layers.{layer}.{block}.{part}'


def linear_members(layers: int) -> tuple[str, ...]:
    """All linear layers, by name."""
    return tuple(member(layer, block, part) for layer in range(layers) for block in BLOCKS for part in PARTS)


@dataclass(frozen=True)
class RoundedWeights:
    """Of the layers that read the same inputs: their outputs one after the other."""

    codes: UInt8  # (outputs, inputs) E4M3
    scales: Float32  # (outputs,)

    @classmethod
    def nearest(cls, weight: Float32) -> RoundedWeights:
        """Weights (outputs, inputs), each rounded for itself."""
        scales = e4m3.scales_of(weight)
        return cls(e4m3.encoded(weight / scales[:, None]), scales)


@dataclass(frozen=True)
class Calibration:
    """Measured on a recording, for one set of weights, one size of image and one K.

    The bases change no result before rounding: each is folded into the weights of the layer before, its inverse into those after.
    """

    residual_basis: Float32  # (256, 256): the graphs' state is this times the network's
    value_bases: Float32  # (layers, 2, heads, 64, 64): the same for the values of each self and cross attention
    centres: Mapping[str, Float32]  # by linear: (inputs,), subtracted before rounding
    peaks: Mapping[str, float]  # by linear: what must be held of its inputs, centre subtracted
    fp8: frozenset[str]  # the members that compute in FP8; the rest stays FP16
    provenance: Mapping[str, Any] = field(default_factory=dict)  # weights_sha256, image_height, image_width, max_keypoints, …
    compensated: Mapping[str, Int32] = field(default_factory=dict)  # by linear: the inputs whose rounding error is multiplied too
    weights: Mapping[str, RoundedWeights] = field(default_factory=dict)  # by linear; others are rounded to the nearest

    @property
    def sha256(self) -> str:
        """Of `content`, hexadecimal."""
        return hashlib.sha256(self.content()).hexdigest()

    def content(self) -> bytes:
        """As a safetensors file holds it."""
        from safetensors.numpy import save
        tensors = {'residual_basis': self.residual_basis, 'value_bases': self.value_bases,
                   **{f'centre.{name}': values for name, values in self.centres.items()},
                   **{f'compensated.{name}': inputs for name, inputs in self.compensated.items()},
                   **{f'codes.{name}': weight.codes for name, weight in self.weights.items()},
                   **{f'scales.{name}': weight.scales for name, weight in self.weights.items()}}
        notes = {'schema': SCHEMA, 'peaks': dict(self.peaks), 'fp8': sorted(self.fp8), 'provenance': dict(self.provenance)}
        data: bytes = save({name: np.ascontiguousarray(values) for name, values in tensors.items()},
                           metadata={'calibration': json.dumps(notes)})
        return data

    @classmethod
    def of_content(cls, data: bytes) -> Calibration:
        """Inverse of `content`: whoever keeps it checks the file's checksum, and that this version's code wrote it."""
        tensors, metadata = parse(data)
        notes = json.loads(metadata['calibration'])

        def called(kind: str) -> dict[str, Any]:
            return {name.removeprefix(f'{kind}.'): values for name, values in tensors.items() if name.startswith(f'{kind}.')}

        scales = called('scales')
        weights = {name: RoundedWeights(codes, scales[name]) for name, codes in called('codes').items()}
        return cls(tensors['residual_basis'], tensors['value_bases'], called('centre'), notes['peaks'], frozenset(notes['fp8']),
                   notes['provenance'], called('compensated'), weights)
