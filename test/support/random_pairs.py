"""Pairs of random weights of any width, whose matcher goes by likeness as a trained one does at first, and their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lightglue_trt_ros.networks.models import Model
from lightglue_trt_ros.networks.weights import Tensors, Weights
from training.weight_files import write_network

TINY: Any = {'encoder': (8, 8, 16, 16), 'descriptors': 32, 'width': 64, 'layers': 2}


def random_extractor(seed: int, encoder: tuple[int, ...], descriptors: int) -> Tensors:
    """SuperPoint whose encoder's four stages have these many channels."""
    rng, tensors, inputs = np.random.default_rng(seed), Tensors(), 1

    def convolution(name: str, outputs: int, inputs: int, side: int) -> None:
        spread = np.sqrt(2 / (inputs * side * side))
        tensors[f'{name}.weight'] = rng.normal(0, spread, (outputs, inputs, side, side)).astype(np.float32)
        tensors[f'{name}.bias'] = rng.normal(0, 0.01, outputs).astype(np.float32)

    for stage, channels in enumerate(encoder, 1):
        convolution(f'conv{stage}a', channels, inputs, 3)
        convolution(f'conv{stage}b', channels, channels, 3)
        inputs = channels
    for name, outputs in (('P', 65), ('D', descriptors)):
        convolution(f'conv{name}a', 2 * inputs, inputs, 3)
        convolution(f'conv{name}b', outputs, 2 * inputs, 1)
    return tensors


def random_matcher(seed: int, descriptors: int, width: int, layers: int, hidden: int | None = None) -> Tensors:
    """LightGlue; `hidden` channels in its FFNs, by default twice its width."""
    rng, tensors, hidden = np.random.default_rng(seed), Tensors(), hidden or 2 * width

    def linear(name: str, outputs: int, inputs: int, gain: float = 0.1) -> None:
        tensors[f'{name}.weight'] = rng.normal(0, gain * inputs ** -0.5, (outputs, inputs)).astype(np.float32)
        tensors[f'{name}.bias'] = np.zeros(outputs, np.float32)

    if descriptors != width:
        linear('input_proj', width, descriptors, gain=4 * (descriptors / width) ** 0.5)
    tensors['posenc.Wr.weight'] = rng.normal(0, 1, (32, 2)).astype(np.float32)
    for layer in range(layers):
        name = f'transformers.{layer}'
        linear(f'{name}.self_attn.Wqkv', 3 * width, width)
        linear(f'{name}.self_attn.out_proj', width, width)
        for part in ('to_qk', 'to_v', 'to_out'):
            linear(f'{name}.cross_attn.{part}', width, width)
        for block in ('self', 'cross'):
            linear(f'{name}.{block}_attn.ffn.0', hidden, 2 * width)
            tensors[f'{name}.{block}_attn.ffn.1.weight'] = np.ones(hidden, np.float32)
            tensors[f'{name}.{block}_attn.ffn.1.bias'] = np.zeros(hidden, np.float32)
            linear(f'{name}.{block}_attn.ffn.3', width, hidden)
        linear(f'log_assignment.{layer}.final_proj', width, width)
        tensors[f'log_assignment.{layer}.final_proj.weight'] = (12 if descriptors == width else 5) * np.eye(width, dtype=np.float32)
        linear(f'log_assignment.{layer}.matchability', 1, width)
        tensors[f'log_assignment.{layer}.matchability.bias'] += 3
        if layer < layers - 1:
            linear(f'token_confidence.{layer}.token.0', 1, width)
    return tensors


def random_pair(seed: int = 0, *, encoder: tuple[int, ...], descriptors: int, width: int, layers: int,
                hidden: int | None = None) -> Model:
    """A pair that lies nowhere."""
    extractor = random_extractor(seed, encoder, descriptors)
    matcher = random_matcher(seed + 1, descriptors, width, layers, hidden)
    return Model('random', Weights('random extractor', extractor, '0' * 64, Path('extractor')),
                 Weights('random matcher', matcher, '1' * 64, Path('matcher')), 'random')


def write_pair(folder: Path, name: str = 'mine', pair: Model | None = None) -> Path:
    """The two files of a small pair."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = pair or random_pair(**TINY)
    for network in ('extractor', 'matcher'):
        write_network(folder / f'{network}.safetensors', getattr(pair, network).tensors, pair=name, network=network,
                      licence='Apache-2.0')
    return folder
