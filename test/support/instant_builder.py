"""A stand-in for TensorRT's builder, which returns at once, and the size of the engines that tests ask it for."""

from __future__ import annotations

from lightglue_trt_ros.engines.precision_check import LayerInfo, Plan, TimingCache
from lightglue_trt_ros.engines.tensorrt_api import BuildOptions, Progress

HEIGHT, WIDTH, K = 160, 208, 128
SIZE = ['--height', str(HEIGHT), '--width', str(WIDTH), '--max-keypoints', str(K)]


class InstantBuilder:
    """Builds at once; its engines are the ONNX graphs themselves."""

    name, version = 'tensorrt', '10.3.0'

    def __init__(self, comes_out: str | None = None) -> None:
        self.builds: list[tuple[str, BuildOptions]] = []
        self.comes_out = comes_out

    def build(self, onnx: bytes, precision: str, options: BuildOptions, progress: Progress) -> Plan:
        self.builds.append((precision, options))
        for step in range(3):
            progress('tactics', step, 2)
        layers = tuple(LayerInfo(name, 'Convolution', self.comes_out or precision) for name in ('first', 'second'))
        timed = TimingCache(f'timings {len(self.builds)}'.encode())
        return Plan(b'plan of ' + onnx, timed, layers, 1.25, True, onnx_bytes=len(onnx))
