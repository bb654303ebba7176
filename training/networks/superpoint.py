"""SuperPoint's layers (DeTone, Malisiewicz, Rabinovich, CVPRW 2018), with batch norms that fold into them for inference."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightglue_trt_ros.networks.architecture import STEM

WIDTHS = (64, 64, 128, 128, 256)  # channels of the four blocks, and of the heads' first layers
DESCRIPTOR = 256


def convolve(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """`conv` of x; one channel is padded to eight, as tensor cores take no fewer."""
    if conv.in_channels > 1 or not x.is_cuda:
        return conv(x)
    more = (0, 0, 0, 0, 0, 7)
    return F.conv2d(F.pad(x, more), F.pad(conv.weight, more), conv.bias, conv.stride, conv.padding)


def _convolution(inputs: int, outputs: int, side: int) -> nn.Conv2d:
    """Kernels of an even side halve the image."""
    return nn.Conv2d(inputs, outputs, side, stride=2 - side % 2, padding=(side - 1) // 2)


class NormalizedConv(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, side: int = 3) -> None:
        super().__init__()
        self.conv = _convolution(inputs, outputs, side)
        self.norm = nn.BatchNorm2d(outputs, momentum=0.02)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity='relu')
        nn.init.zeros_(self.conv.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(convolve(self.conv, x)))

    @torch.no_grad()
    def folded(self) -> tuple[Tensor, Tensor]:
        """Kernel and bias of the one convolution that does the same in inference."""
        gain = self.norm.weight / torch.sqrt(self.norm.running_var + self.norm.eps)
        return self.conv.weight * gain[:, None, None, None], (self.conv.bias - self.norm.running_mean) * gain + self.norm.bias

    @torch.no_grad()
    def unfold(self, kernel: Tensor, bias: Tensor, x: Tensor) -> Tensor:
        """Take a folded layer's weights, with a norm that leaves its answer to `x` as it is; returns that answer."""
        self.conv.weight.copy_(kernel), self.conv.bias.copy_(bias)
        answer = convolve(self.conv, x)
        variance, mean = torch.var_mean(answer, (0, 2, 3), correction=0)
        for ours, value in ((self.norm.running_mean, mean), (self.norm.running_var, variance), (self.norm.bias, mean),
                            (self.norm.weight, (variance + self.norm.eps).sqrt())):
            ours.copy_(value)
        return F.relu(answer)


class SuperPoint(nn.Module):
    """images (B, 1, H, W) in [0, 1] -> logits (B, 65, H / 8, W / 8), descriptors (B, DESCRIPTOR, H / 8, W / 8), not normalised."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS, *, stem: bool = False) -> None:
        """`stem`: the first convolution halves the image, instead of a maximum after the second."""
        super().__init__()
        self.stem = stem
        first, second, third, fourth, head = widths
        sizes = {'1a': (1, first), '1b': (first, first), '2a': (first, second), '2b': (second, second), '3a': (second, third),
                 '3b': (third, third), '4a': (third, fourth), '4b': (fourth, fourth), 'Pa': (fourth, head), 'Da': (fourth, head)}
        for name, (inputs, outputs) in sizes.items():
            setattr(self, f'conv{name}', NormalizedConv(inputs, outputs, STEM if stem and name == '1a' else 3))
        self.convPb, self.convDb = nn.Conv2d(head, 65, 1), nn.Conv2d(head, DESCRIPTOR, 1)
        nn.init.zeros_(self.convPb.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv1b(self.conv1a(x))
        x = self.conv2b(self.conv2a(x if self.stem else F.max_pool2d(x, 2)))
        x = self.conv3b(self.conv3a(F.max_pool2d(x, 2)))
        x = self.conv4b(self.conv4a(F.max_pool2d(x, 2)))
        return self.convPb(self.convPa(x)), self.convDb(self.convDa(x))

    @torch.no_grad()
    def take(self, tensors: dict[str, Tensor], images: Tensor) -> None:
        """Begin with exported tensors, and norms with the statistics of `images` (B, 1, H, W), such as it is to be trained on.

        A layer of another shape begins at random.
        """
        x, whole = images, ('conv1a', 'conv2a') if self.stem else ('conv1a',)
        for name, layer in self.named_children():
            kernel, bias = tensors[f'{name}.weight'].to(x.device), tensors[f'{name}.bias'].to(x.device)
            if not isinstance(layer, NormalizedConv):
                layer.weight.copy_(kernel), layer.bias.copy_(bias)
            elif name in ('convPa', 'convDa'):
                layer.unfold(kernel, bias, x)
            else:
                x = F.max_pool2d(x, 2) if name.endswith('a') and name not in whole else x
                x = layer.unfold(kernel, bias, x) if kernel.shape == layer.conv.weight.shape else layer(x)

    @torch.no_grad()
    def exported(self) -> dict[str, Tensor]:
        """Tensors float32 under the released model's names, batch norms folded in."""
        tensors: dict[str, Tensor] = {}
        for name, layer in self.named_children():
            kernel, bias = layer.folded() if isinstance(layer, NormalizedConv) else (layer.weight, layer.bias)
            tensors |= {f'{name}.weight': kernel, f'{name}.bias': bias}
        return {name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}


class FoldedSuperPoint(nn.Module):
    """The same from exported tensors, for inference."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for name in dict.fromkeys(key.rsplit('.', 1)[0] for key in tensors):
            kernel = tensors[f'{name}.weight']
            conv = _convolution(kernel.shape[1], kernel.shape[0], kernel.shape[-1])
            conv.load_state_dict({'weight': kernel, 'bias': tensors[f'{name}.bias']})
            setattr(self, name, conv)
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.conv1b(F.relu(convolve(self.conv1a, x))))
        for block in '234':
            a, b = getattr(self, f'conv{block}a'), getattr(self, f'conv{block}b')
            x = F.relu(b(F.relu(a(x if block == '2' and self.conv1a.stride == (2, 2) else F.max_pool2d(x, 2)))))
        return self.convPb(F.relu(self.convPa(x))), self.convDb(F.relu(self.convDa(x)))
