"""Prediction of a frame's GPU time on boards that nobody measured, from counted work, data sheets and a share of a large GPU.

The **bound** of a stage is the larger of its operations over the GPU's peak rate and its bytes over the memory's bandwidth. It
is no estimate: real engines need several times as long. The **estimate** is the time of the share of an H200 that has the board's
peak rates: between measured shares the logarithms are interpolated. Below 8 multiprocessors the time grows with the operations, and
above 132 it stays, because launches and waits take most of it. It is at least the bound. FP8 is not predicted: TensorRT 8.6, which
all was measured with, has no FP8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lightglue_trt_ros.core.config import SHIPPED_MODELS, EngineSpec, MatcherConfig
from lightglue_trt_ros.core.refinement import COARSE, FINE
from lightglue_trt_ros.core.refinement.patches import SOURCES
from lightglue_trt_ros.networks.models import load_model

from .graph_costs import Work, network_work

STAGES = ('extract', 'match', 'place')  # as in timing.device_times; place is refinement and geometry
MEASURED_AT = EngineSpec(480, 640, 1024, 'fp16')
SHARES = (8, 16, 132)  # multiprocessors of the H200: what CUDA MPS leaves of them, and all
# Milliseconds of STAGES by model and multiprocessors: `benchmark device`, H200, TensorRT 8.6, all layers, tartanair_hospital.
TIMES_MS = {
    ('ours', 8): (1.398, 3.216, 0.527),
    ('ours', 16): (0.786, 1.856, 0.354),
    ('ours', 132): (0.255, 0.651, 0.220),
    ('ours_light', 8): (0.833, 2.214, 0.506),
    ('ours_light', 16): (0.499, 1.292, 0.358),
    ('ours_light', 132): (0.207, 0.470, 0.252),
}


@dataclass(frozen=True)
class Board:
    """Peak rates of a GPU by its data sheet."""

    name: str
    matrix_tflops: float  # of tensor cores: FP16, dense, summed in FP32
    tflops: float  # FP32
    gb_per_s: float

    def compute_ms(self, work: Work) -> float:
        """Time of its operations at the peak rate."""
        return (work.matrix_flops / self.matrix_tflops + work.flops / self.tflops) / 1e9

    def bound_ms(self, work: Work) -> float:
        """The least time of `work`."""
        return max(self.compute_ms(work), work.bytes / self.gb_per_s / 1e6)


# NVIDIA's data sheets "Jetson Orin Nano Series", "Jetson Orin NX Series" and "Jetson AGX Orin Series", and its white paper "NVIDIA
# Ada GPU Architecture". Those of Jetsons have sparse INT8 operations, four times the dense FP16 ones. Of an Orin NX's 100 TOPS the
# GPU has 60, at 918 MHz; the DLAs have the others. The Orin Nano runs in its mode MAXN SUPER.
BOARDS = (Board('Orin Nano Super', 17, 2.1, 102), Board('Orin NX 16 GB', 15, 1.9, 102), Board('AGX Orin 64 GB', 42, 5.3, 204),
          Board('RTX 4060', 30, 15.1, 272), Board('RTX 4090', 165, 82.6, 1008))


def share_of_h200(multiprocessors: int) -> Board:
    """Multiprocessors of an H200 at 1.98 GHz; the whole memory is theirs."""
    return Board(f'H200, {multiprocessors} multiprocessors', 8.1 * multiprocessors, 0.507 * multiprocessors, 4800)


@dataclass(frozen=True)
class Estimate:
    """Milliseconds, predicted."""

    bound_ms: float
    estimate_ms: float


@dataclass(frozen=True)
class BoardPrediction:
    """Work of each stage; estimates by board and stage, and `together`."""

    work: dict[str, Work]
    boards: dict[str, dict[str, Estimate]]


def predict(config: MatcherConfig) -> BoardPrediction:
    """The prediction for the shapes and the model of `config`, in FP16 and with all layers.

    A model without measured times is scaled from those of `ours`. Raises WeightsError, ConfigError, and EngineError where a library
    that writes graphs is missing.
    """
    spec, model = config.engine_spec('fp16'), config.weights
    reference = model if (model, SHARES[0]) in TIMES_MS else SHIPPED_MODELS[0]
    work = stage_work(spec, model)
    measured = work if (spec, model) == (MEASURED_AT, reference) else stage_work(MEASURED_AT, reference)

    def estimate(board: Board, stage: str) -> Estimate:
        """The time of the share of the H200 that has the board's rates, and no less than the bound."""
        computing = [share_of_h200(count).compute_ms(measured[stage]) for count in SHARES]
        times = [TIMES_MS[reference, count][STAGES.index(stage)] for count in SHARES]
        asked = board.compute_ms(work[stage])
        between = float(np.interp(math.log(asked), np.log(computing[::-1]), np.log(times[::-1])))
        bound = board.bound_ms(work[stage])
        return Estimate(bound, max(bound, math.exp(between) * max(1.0, asked / computing[0])))

    boards = {board.name: {stage: estimate(board, stage) for stage in STAGES} for board in BOARDS}
    for times in boards.values():
        stages = list(times.values())
        times['together'] = Estimate(sum(each.bound_ms for each in stages), sum(each.estimate_ms for each in stages))
    return BoardPrediction(work, boards)


def stage_work(spec: EngineSpec, model: str) -> dict[str, Work]:
    """Of STAGES for frames of the engine's size and K points: networks, the kernels of frames, and those of refinement.

    Networks count as whole graphs. The kernels that select keypoints, attend and assign do the same products with fewer bytes.
    Geometry is not counted: it has few operations, one after the other.
    """
    extractor, matcher = network_work(spec, load_model(model))
    pixels, samples, gradients, read = spec.image_height * spec.image_width, 0, 0, 0
    for level in (COARSE, FINE):
        patch, rim = (2 * level.radius + 1)**2, (2 * level.radius + 3)**2
        samples += 2 * rim + level.steps * patch  # both patches with their rim, and the current one in each step
        gradients += 2 * patch
        read += 2 * 4 * rim  # FP32
    a_point = 26 * samples + 20 * gradients + 40 * SOURCES  # operations of each of them in refinement.cu
    # The frame comes in, is resized, becomes FP32 and is halved: a quarter of its pixels, of 5 x 5 products each.
    frame = Work(flops=13 * pixels, bytes=13 * pixels)
    return {'extract': extractor + frame, 'match': matcher,
            'place': Work(flops=a_point * spec.max_keypoints, bytes=read * spec.max_keypoints)}


def measured_ms(config: MatcherConfig) -> dict[str, dict[str, float]]:
    """Times measured on shares of an H200, by share and stage with `together`: only for models and shapes of TIMES_MS."""
    if config.engine_spec('fp16') != MEASURED_AT:
        return {}
    return {share_of_h200(count).name: dict(zip(STAGES, times, strict=True)) | {'together': sum(times)}
            for (model, count), times in TIMES_MS.items() if model == config.weights}
