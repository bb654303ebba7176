"""Names and shapes of the tensors of both networks. How wide and how deep a network is, they say themselves.

SuperPoint: DeTone et al., CVPRW 2018. LightGlue: Lindenberger et al., ICCV 2023.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..utils.errors import WeightsError

EXTRACTOR, MATCHER = NETWORKS = ('extractor', 'matcher')
CELL = 8  # of SuperPoint: pixels per side of a descriptor cell
BORDER = 4  # keypoints closer to the image's edge are dropped
BLOCK = 4  # at most one survivor of NMS stands in a BLOCK x BLOCK square, as BLOCK is no more than the radius of NMS
DESCRIPTOR_HEAD = 'descriptor_assignment'  # of a matcher, by name of its tensors: the assignment before the first layer
STEM = 6  # side of an extractor's first kernels, where they halve the image
HEAD_DIM = 64  # channels of an attention head; a matcher as wide as w has w / 64 heads
_ENCODER = tuple(f'conv{stage}{half}' for stage in range(1, 5) for half in 'ab')
_CELL_CLASSES = 65  # the pixels of a cell, and "no keypoint here"

Tensors = Mapping[str, NDArray[Any]]


def check_network(network: str, tensors: Tensors, what: str) -> None:
    """Raise WeightsError unless these are an extractor's or a matcher's tensors: all of them, of shapes that go together, finite.

    Tensors of other names are not checked. `what` says in the message whose they are.
    """
    (_check_extractor if network == EXTRACTOR else _check_matcher)(_Tensors(tensors, what))


def descriptors_of(extractor: Tensors) -> int:
    """How long an extractor's descriptors are."""
    return int(extractor['convDb.weight'].shape[0])


def descriptors_for(matcher: Tensors) -> int:
    """How long a matcher's descriptors have to be."""
    name = 'input_proj.weight' if 'input_proj.weight' in matcher else 'transformers.0.self_attn.Wqkv.weight'
    return int(matcher[name].shape[1])


def halves(extractor: Tensors) -> bool:
    """Whether an extractor's first convolution halves the image."""
    return 'conv1a.weight' in extractor and extractor['conv1a.weight'].shape[-1] == STEM


def layers_of(matcher: Tensors) -> int:
    """Layers of a matcher, each a self and a cross attention."""
    numbers = (re.match(r'transformers\.(\d+)\.', name) for name in matcher)
    return max((int(match[1]) + 1 for match in numbers if match), default=0)


class _Tensors:
    """Looks at one tensor after the other."""

    def __init__(self, tensors: Tensors, what: str) -> None:
        self.tensors, self.what = tensors, what

    def check(self, name: str, *expected: int | None) -> tuple[int, ...]:
        """The tensor's shape, which is the expected one, where None is any size."""
        if name not in self.tensors:
            raise WeightsError(f'{self.what} has no tensor {name}: the file is not whole, or of another network')
        tensor = self.tensors[name]
        shape = tensor.shape
        if len(shape) != len(expected) or any(size not in (None, mine) for mine, size in zip(shape, expected, strict=True)):
            wanted = str(expected).replace('None', '*')
            raise WeightsError(f'{self.what}: {name} has shape {shape} where {wanted} is expected')
        if tensor.dtype not in (np.float16, np.float32):
            raise WeightsError(f'{self.what}: {name} is {tensor.dtype}: float32 and float16 can be used')
        if wrong := tensor.size - int(np.isfinite(tensor).sum()):
            raise WeightsError(f'{self.what}: {name} has {wrong} values that are NaN or infinite, of {tensor.size}')
        return shape

    def layer(self, name: str, inputs: int, outputs: int | None = None, *, side: int | None = None) -> int:
        """Outputs of a linear layer, or of a convolution with kernels of side x side, which has a weight and a bias."""
        outputs = self.check(f'{name}.weight', outputs, inputs, *([] if side is None else [side, side]))[0]
        self.check(f'{name}.bias', outputs)
        return outputs


def _check_extractor(tensors: _Tensors) -> None:
    channels = 1
    for name in _ENCODER:
        channels = tensors.layer(name, channels, side=STEM if name == 'conv1a' and halves(tensors.tensors) else 3)
    tensors.layer('convPb', tensors.layer('convPa', channels, side=3), _CELL_CLASSES, side=1)
    tensors.layer('convDb', tensors.layer('convDa', channels, side=3), side=1)


def _check_matcher(tensors: _Tensors) -> None:
    width = tensors.check('transformers.0.self_attn.Wqkv.weight', None, None)[1]
    if width % HEAD_DIM:
        raise WeightsError(f'{tensors.what}: a matcher {width} channels wide has no whole number of heads of {HEAD_DIM}')
    if 'input_proj.weight' in tensors.tensors:
        tensors.layer('input_proj', tensors.check('input_proj.weight', None, None)[1], width)
    if any(name.startswith(f'{DESCRIPTOR_HEAD}.') for name in tensors.tensors):  # else there is an untrained one
        descriptors = descriptors_for(tensors.tensors)
        tensors.layer(f'{DESCRIPTOR_HEAD}.final_proj', descriptors, width)
        tensors.layer(f'{DESCRIPTOR_HEAD}.matchability', descriptors, 1)
    tensors.check('posenc.Wr.weight', HEAD_DIM // 2, 2)
    layers = layers_of(tensors.tensors)
    for layer in range(layers):
        name = f'transformers.{layer}'
        tensors.layer(f'{name}.self_attn.Wqkv', width, 3 * width)
        tensors.layer(f'{name}.self_attn.out_proj', width, width)
        for part in ('to_qk', 'to_v', 'to_out'):
            tensors.layer(f'{name}.cross_attn.{part}', width, width)
        for block in ('self', 'cross'):
            hidden = tensors.layer(f'{name}.{block}_attn.ffn.0', 2 * width)
            for kind in ('weight', 'bias'):
                tensors.check(f'{name}.{block}_attn.ffn.1.{kind}', hidden)
            tensors.layer(f'{name}.{block}_attn.ffn.3', hidden, width)
        tensors.layer(f'log_assignment.{layer}.final_proj', width, width)
        tensors.layer(f'log_assignment.{layer}.matchability', width, 1)
        if layer < layers - 1:
            tensors.layer(f'token_confidence.{layer}.token.0', width, 1)
