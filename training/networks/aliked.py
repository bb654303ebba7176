"""The score map of ALIKED-n16, the detector's teacher (Zhao et al., ALIKED, IEEE TIM 2023; weights and code BSD-3)."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

C1, C2, C3, C4, DIM = 16, 32, 64, 128, 128
SIDES = 32  # height and width are multiples of it


class DeformableConv(nn.Module):
    """A 3 x 3 convolution whose taps are moved by offsets (Dai et al., Deformable Convolutional Networks, ICCV 2017)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.offset_conv = nn.Conv2d(inputs, 18, 3, padding=1)
        self.regular_conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        reach = max(height, width) / 4
        offsets = self.offset_conv(x).clamp(-reach, reach)
        rows, columns = torch.arange(height, device=x.device)[:, None], torch.arange(width, device=x.device)
        taps = []
        for tap in range(9):
            v = rows + (tap // 3 - 1) + offsets[:, 2 * tap]
            u = columns + (tap % 3 - 1) + offsets[:, 2 * tap + 1]
            grid = torch.stack([u / (width - 1) * 2 - 1, v / (height - 1) * 2 - 1], -1)
            taps.append(F.grid_sample(x, grid, align_corners=True))
        kernel = self.regular_conv.weight.flatten(2).permute(0, 2, 1).flatten(1)
        return F.conv2d(torch.cat(taps, 1), kernel[:, :, None, None])


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, deformable: bool = False, residual: bool = True) -> None:
        super().__init__()

        def conv(a: int, b: int) -> nn.Module:
            return DeformableConv(a, b) if deformable else nn.Conv2d(a, b, 3, padding=1, bias=False)

        self.conv1, self.bn1 = conv(inputs, outputs), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs), nn.BatchNorm2d(outputs)
        self.downsample = nn.Conv2d(inputs, outputs, 1) if residual else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.selu(self.bn1(self.conv1(x)))))
        return F.selu(y if self.downsample is None else y + self.downsample(x))


class AlikedScores(nn.Module):
    """images (B, 1, H, W) in [0, 1], sides multiples of SIDES -> scores (B, 1, H, W) in [0, 1]."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.block1, self.block2 = Block(3, C1, residual=False), Block(C1, C2)
        self.block3, self.block4 = Block(C2, C3, deformable=True), Block(C3, C4, deformable=True)
        for i, width in enumerate((C1, C2, C3, C4), start=1):
            setattr(self, f'conv{i}', nn.Conv2d(width, DIM // 4, 1, bias=False))
        widths = (DIM, 8, 4, 4, 1)
        convs = [nn.Conv2d(a, b, 1 if a == DIM else 3, padding=0 if a == DIM else 1, bias=False)
                 for a, b in itertools.pairwise(widths)]
        self.score_head = nn.Sequential(convs[0], nn.SELU(), convs[1], nn.SELU(), convs[2], nn.SELU(), convs[3])
        state = torch.load(path, map_location='cpu', weights_only=True)
        self.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith('desc_head')})
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.block1(x.expand(-1, 3, -1, -1))
        x2 = self.block2(F.avg_pool2d(x1, 2))
        x3 = self.block3(F.avg_pool2d(x2, 4))
        x4 = self.block4(F.avg_pool2d(x3, 4))
        first, *rest = self.score_head
        parts = first.weight.split(DIM // 4, dim=1)
        scores: Tensor = 0
        # The head's first layer is 1 x 1, so it goes before the upsampling: 8 channels grow to full size instead of 128.
        for features, conv, part, scale in zip((x1, x2, x3, x4), (self.conv1, self.conv2, self.conv3, self.conv4), parts,
                                               (1, 2, 8, 32), strict=True):
            y = F.conv2d(F.selu(conv(features)), part)
            scores = scores + (y if scale == 1 else F.interpolate(y, scale_factor=scale, mode='bilinear', align_corners=True))
        for layer in rest:
            scores = layer(scores)
        return torch.sigmoid(scores.float())
