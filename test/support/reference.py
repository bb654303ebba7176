"""The independent implementation that the graphs are held against: transformers' SuperPoint and LightGlue, with our weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers

from lightglue_trt_ros.networks.architecture import DESCRIPTOR_HEAD, STEM, halves

_SUPERPOINT = {
    'conv1a': 'encoder.conv_blocks.0.conv_a', 'conv1b': 'encoder.conv_blocks.0.conv_b',
    'conv2a': 'encoder.conv_blocks.1.conv_a', 'conv2b': 'encoder.conv_blocks.1.conv_b',
    'conv3a': 'encoder.conv_blocks.2.conv_a', 'conv3b': 'encoder.conv_blocks.2.conv_b',
    'conv4a': 'encoder.conv_blocks.3.conv_a', 'conv4b': 'encoder.conv_blocks.3.conv_b',
    'convPa': 'keypoint_decoder.conv_score_a', 'convPb': 'keypoint_decoder.conv_score_b',
    'convDa': 'descriptor_decoder.conv_descriptor_a', 'convDb': 'descriptor_decoder.conv_descriptor_b'}

_BLOCK = {'out_proj': 'attention.o_proj', 'to_out': 'attention.o_proj', 'to_v': 'attention.v_proj',
          'ffn.0': 'mlp.fc1', 'ffn.1': 'mlp.layer_norm', 'ffn.3': 'mlp.fc2'}


RUNS_ON = 1.0  # a depth_confidence that asks after each layer, and never stops


def superpoint(tensors: dict[str, np.ndarray], threshold: float) -> Any:
    """transformers' SuperPoint with all keypoints above `threshold`."""
    encoder, (decoder, descriptors) = [tensors[f'conv{stage}b.bias'].size for stage in range(1, 5)], [
        tensors[f'convD{half}.bias'].size for half in 'ab']
    config = transformers.SuperPointConfig(keypoint_threshold=threshold, max_keypoints=-1, encoder_hidden_sizes=encoder,
                                           decoder_hidden_size=decoder, descriptor_decoder_dim=descriptors)
    model = transformers.SuperPointForKeypointDetection(config).eval()
    if halves(tensors):  # it knows no such first convolution
        first = model.encoder.conv_blocks[0]
        first.conv_a, first.pool = torch.nn.Conv2d(1, encoder[0], STEM, stride=2, padding=2), None
    state = {f'{_SUPERPOINT[name.split(".")[0]]}.{name.split(".")[1]}': torch.from_numpy(np.array(value, np.float32))
             for name, value in tensors.items()}
    model.load_state_dict(state)
    return model


def lightglue(tensors: dict[str, np.ndarray]) -> Any:
    """transformers' LightGlue without early exit and pruning."""
    width = tensors['transformers.0.self_attn.Wqkv.weight'].shape[1]
    config = transformers.LightGlueConfig(depth_confidence=-1.0, width_confidence=-1.0, filter_threshold=0.1, descriptor_dim=width,
                                          num_hidden_layers=sum(name.endswith('Wqkv.bias') for name in tensors),
                                          num_attention_heads=width // 64,
                                          keypoint_detector_config=transformers.SuperPointConfig())
    model = transformers.LightGlueForKeypointMatching(config).eval()
    for layer in model.transformer_layers:
        layer.register_forward_pre_hook(_unmasked, with_kwargs=True)
    if 'input_proj.weight' in tensors:
        model.input_projection = torch.nn.Linear(256, width)
    state = {name: torch.from_numpy(value) for name, value in _lightglue_state(tensors).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.startswith('keypoint_detector') for name in missing), missing
    return model


def _unmasked(_: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a layer is given, so that every row attends, as in our graphs; masks are left to confidences and the assignment."""
    nothing = torch.zeros_like(options['attention_mask'], dtype=inputs[0].dtype)  # is added to logits
    return inputs, options | {'attention_mask': nothing}


def _lightglue_state(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    state = {}
    for name, value in tensors.items():
        if name.startswith(f'{DESCRIPTOR_HEAD}.'):
            continue  # an exit that it does not have
        value, parts = np.array(value, np.float32), name.split('.')
        kind = parts[-1]
        if parts[0] == 'transformers':
            layer, block, rest = parts[1], parts[2].replace('_attn', ''), '.'.join(parts[3:-1])
            prefix = f'transformer_layers.{layer}.{block}_'
            if rest == 'Wqkv':
                apart = value.reshape(-1, 64, 3, *value.shape[1:])
                for i, letter in enumerate('qkv'):
                    state[f'{prefix}attention.{letter}_proj.{kind}'] = np.ascontiguousarray(
                        apart[:, :, i].reshape(-1, *value.shape[1:]))
            elif rest == 'to_qk':
                state[f'{prefix}attention.q_proj.{kind}'] = state[f'{prefix}attention.k_proj.{kind}'] = value
            else:
                state[f'{prefix}{_BLOCK[rest]}.{kind}'] = value
        elif parts[0] == 'log_assignment':
            head = {'final_proj': 'final_projection', 'matchability': 'matchability'}[parts[2]]
            state[f'match_assignment_layers.{parts[1]}.{head}.{kind}'] = value
        elif parts[0] == 'token_confidence':
            state[f'token_confidence.{parts[1]}.token.{kind}'] = value
        elif parts[0] == 'posenc':
            state[f'positional_encoder.projector.{kind}'] = value
        else:
            state[name.replace('input_proj', 'input_projection')] = value
    return state


def log_assignment(model: Any, keypoints: np.ndarray, descriptors: np.ndarray, valid: np.ndarray,
                   size: tuple[int, int]) -> np.ndarray:
    """The (K, K) log assignment of transformers' LightGlue; keypoints (2, K, 2), descriptors (2, K, 256), valid (2, K)."""
    seen: dict[str, Any] = {}
    head = model.match_assignment_layers[-1]
    handle = head.register_forward_hook(lambda module, inputs, output: seen.update(scores=output))
    with torch.no_grad():
        model._match_image_pair(torch.from_numpy(keypoints)[None], torch.from_numpy(descriptors)[None], *size,
                                mask=torch.from_numpy(valid.astype(np.int64))[None])
    handle.remove()
    scores: np.ndarray = seen['scores'][0, :-1, :-1].numpy()
    return scores


class _AskedError(Exception):
    """Nothing more is asked for."""


def layers_that_run(model: Any, keypoints: np.ndarray, descriptors: np.ndarray, valid: np.ndarray, size: tuple[int, int],
                    depth_confidences: Sequence[float]) -> list[int]:
    """After how many layers transformers' LightGlue decides to stop, at each confidence; the rest as above.

    It runs once, does not stop, and is asked after each layer what it would do. What it does then is left out.
    """
    decide, stopped = type(model)._get_early_stopped_image_pairs, [model.num_layers] * len(depth_confidences)

    def watch(confidences: Any, layer_index: int, mask: Any, num_points: Any) -> Any:
        for number, model.depth_confidence in enumerate(depth_confidences):
            if bool(decide(model, confidences, layer_index, mask, num_points).any()):
                stopped[number] = min(stopped[number], layer_index + 1)
        model.depth_confidence = RUNS_ON
        if layer_index == model.num_layers - 2:
            raise _AskedError
        return torch.zeros(1, dtype=torch.bool)

    model.depth_confidence, model._get_early_stopped_image_pairs = RUNS_ON, watch
    try:
        with torch.no_grad():
            model._match_image_pair(torch.from_numpy(keypoints)[None], torch.from_numpy(descriptors)[None], *size,
                                    mask=torch.from_numpy(valid.astype(np.int64))[None])
    except _AskedError:
        return stopped
    finally:
        model.depth_confidence = -1.0
        del model._get_early_stopped_image_pairs
    raise AssertionError('transformers never asked whether to stop')
