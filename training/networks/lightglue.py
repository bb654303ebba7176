"""LightGlue (Lindenberger, Sarlin, Pollefeys, ICCV 2023), under the published names of its tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightglue_trt_ros.networks.weight_folding import SHARPNESS

from ..constants import constant
from ..scenes.views import other

HEAD_DIM = 64
MATCH_SCORE = 0.1  # least score of a match, for what counts as one while training


class Rotary(nn.Module):
    """Positions -> cosines and sines that turn queries and keys (Su et al., RoFormer), with learned frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.Wr = nn.Linear(2, HEAD_DIM // 2, bias=False)
        nn.init.normal_(self.Wr.weight)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = self.Wr(positions).float().repeat_interleave(2, -1)[:, None]
        return torch.cos(angles), torch.sin(angles)


def _turned(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    pairs = x.unflatten(-1, (-1, 2))
    return x * rotary[0] + torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2) * rotary[1]


def _feed_forward(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2 * width, 2 * width), nn.LayerNorm(2 * width), nn.GELU(), nn.Linear(2 * width, width))


class SelfAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // HEAD_DIM
        self.Wqkv, self.out_proj, self.ffn = nn.Linear(width, 3 * width), nn.Linear(width, width), _feed_forward(width)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = self.Wqkv(x).unflatten(-1, (self.heads, HEAD_DIM, 3)).transpose(1, 2).unbind(-1)
        q, k, v = _turned(q, rotary).to(v.dtype), _turned(k, rotary).to(v.dtype), v.contiguous()  # fused attention wants it so
        message = F.scaled_dot_product_attention(q, k, v)
        return x + self.ffn(torch.cat([x, self.out_proj(message.transpose(1, 2).flatten(-2))], -1))


class CrossAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // HEAD_DIM
        self.to_qk, self.to_v, self.to_out = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.ffn = _feed_forward(width)

    def forward(self, x: Tensor) -> Tensor:
        qk, v = (layer(x).unflatten(-1, (self.heads, HEAD_DIM)).transpose(1, 2) for layer in (self.to_qk, self.to_v))
        message = F.scaled_dot_product_attention(qk, other(qk), other(v))
        return x + self.ffn(torch.cat([x, self.to_out(message.transpose(1, 2).flatten(-2))], -1))


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.self_attn, self.cross_attn = SelfAttention(width), CrossAttention(width)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        return self.cross_attn(self.self_attn(x, (cosines, sines)))


class Assignment(nn.Module):
    """States of `state` numbers, or descriptors -> similarity of every pair of points, and the logit that a point has a partner."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.final_proj, self.matchability = nn.Linear(state, width), nn.Linear(state, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(2B, K, state) -> (B, K, K), (2B, K)."""
        projected = self.final_proj(x) / self.final_proj.out_features ** 0.25
        first, second = projected.chunk(2)
        return (first @ second.transpose(1, 2)).float(), self.matchability(x)[..., 0].float()


def descriptor_assignment(width: int, descriptor: int) -> Assignment:
    """The assignment before the first layer, untrained: cosines of descriptors, by SHARPNESS, as the package has it."""
    assignment = Assignment(width, descriptor)
    scale = SHARPNESS ** 0.5 * width ** 0.25
    with torch.no_grad():
        assignment.final_proj.weight.copy_(scale * torch.eye(width, descriptor))
        assignment.final_proj.bias.zero_()
    return assignment


class Confidence(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Sequential(nn.Linear(width, 1), nn.Sigmoid())


class LightGlue(nn.Module):
    """Rows of a batch are first views, then second views, as in TwoViews."""

    def __init__(self, width: int = 256, layers: int = 9, descriptor: int = 256) -> None:
        super().__init__()
        self.input_proj = nn.Linear(descriptor, width)
        if width == descriptor:
            nn.init.orthogonal_(self.input_proj.weight)
            nn.init.zeros_(self.input_proj.bias)
        self.posenc = Rotary()
        self.transformers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.log_assignment = nn.ModuleList(Assignment(width, width) for _ in range(layers))
        self.token_confidence = nn.ModuleList(Confidence(width) for _ in range(layers - 1))
        self.descriptor_assignment = descriptor_assignment(width, descriptor)
        self.layer_of = list(self.transformers)

    def compile_layers(self) -> None:
        """One layer is compiled, and serves all: a tenth of the time that the whole takes."""
        self.layer_of = [torch.compile(layer, dynamic=False) for layer in self.transformers]

    def forward(self, positions: Tensor, descriptors: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised positions (2B, K, 2), descriptors (2B, K, C) -> the last layer's similarity and logits, as Assignment."""
        *_, last = self.states(positions, descriptors)
        similarity, logits = self.log_assignment[-1](last)
        return similarity, logits

    def states(self, positions: Tensor, descriptors: Tensor) -> list[Tensor]:
        """(2B, K, width) after each layer."""
        x, rotary = self.input_proj(descriptors), self.posenc(positions)
        states = []
        for layer in self.layer_of:
            x = layer(x, *rotary)
            states.append(x)
        return states


def normalize_positions(points: Tensor, height: int, width: int) -> Tensor:
    """Pixels (..., 2) -> isotropic, the longer side from -1 to 1."""
    size = constant((width, height), points.device)
    return (points - size / 2) / (max(width, height) / 2)
