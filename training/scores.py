"""Fits the scores of a model, so that they are probabilities, on pairs of views that matchers are trained on:

    python -m training.scores FOLDER --photographs PACK

FOLDER has extractor.safetensors and matcher.safetensors; scores.json appears next to them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.score_calibration import UNCALIBRATED, ScoreCalibration
from lightglue_trt_ros.core.types import Float32
from lightglue_trt_ros.networks.models import SCORES, Model, load_model
from lightglue_trt_ros.utils.errors import WeightsError
from lightglue_trt_ros.utils.files import write_whole
from training.commands import command
from training.photographs import NoPhotographsError, drawings, load_photographs
from training.scenes.views import Scenes, TwoViews, flat_index

RIGHT_PX = 3.0  # a match is right within this distance of the true position
ENOUGH = 2000  # matches at an exit
EPSILON = 1e-9  # the least probability that the likelihood takes


class Matched(NamedTuple):
    """The M matches of a pair of views whose true position is known."""

    layers: int  # that have run
    raw: Float32  # (M,): raw scores
    errors: Float32  # (M,): distances from the true position, pixels


def fit(raw: Float32, errors: Float32) -> ScoreCalibration:
    """Of matches with raw scores (M,) and distances (M,) from the true position, by maximum likelihood."""
    right = errors < RIGHT_PX

    def cost(logarithms: Float32) -> float:
        p = np.clip(ScoreCalibration(*np.exp(logarithms)).probability(raw).astype(np.float64), EPSILON, 1 - EPSILON)
        return float(-np.mean(np.where(right, np.log(p), np.log1p(-p))))

    return ScoreCalibration(*np.round(np.exp(minimize(cost, [0.0, 0.0], method='Nelder-Mead').x), 4).tolist())


def matched_views(model: Model, scenes: Scenes, pairs: int) -> Iterator[Matched]:
    """All matches of each pair, as a robot gets them: refined, with early exits; and those of a pair that needs no layer again."""
    height, width = scenes.renderer.height, scenes.renderer.width
    config = MatcherConfig(image_height=height, image_width=width, match_threshold=0.0, carry_frames=0)
    model = dataclasses.replace(model, score_calibration=UNCALIBRATED)
    spec, exits = config.engine_spec('fp32'), EarlyExits.of(model.layers)
    by_layers = EarlyExits(exits.after_layers)
    with closing(OnnxRuntimeBackend(spec, model, early_exits=by_layers)) as layers, \
         closing(OnnxRuntimeBackend(spec, model, early_exits=exits)) as any_exit:
        for _ in range(pairs):
            views = scenes.draw(1)
            for backend in (layers, any_exit):
                frames = FrameMatcher(backend, config)
                for stamp, image in enumerate((views.images[:, 0] * 255).round().byte().numpy()):
                    found = frames.process(image, stamp / 10)
                assert found is not None
                if backend is layers or not found.layers:
                    errors, known = true_errors(views, found.reference_keypoints, found.keypoints)
                    yield Matched(found.layers, found.scores[known], errors[known])


def fitted(found: list[Matched]) -> ScoreCalibration:
    """The calibration of a model: of all pairs that needed layers, and of each early exit that has ENOUGH matches."""
    *early, _ = sorted({part.layers for part in found})
    by_exit = {layers: joined([part for part in found if part.layers == layers]) for layers in early}
    exits = {layers: fit(raw, errors) for layers, (raw, errors) in by_exit.items() if len(raw) >= ENOUGH}
    return dataclasses.replace(fit(*joined([part for part in found if part.layers])), exits=exits)


def joined(found: list[Matched]) -> tuple[Float32, Float32]:
    """Raw scores and errors (M,) of all their matches."""
    return np.concatenate([part.raw for part in found]), np.concatenate([part.errors for part in found])


def true_errors(views: TwoViews, before: Float32, points: Float32) -> tuple[Float32, np.ndarray]:
    """Distances (M,) of `points` (M, 2) from where `before`, of the first view, is; and where that is known: not at edges."""
    both = torch.from_numpy(np.stack([before, before]))
    errors = np.linalg.norm(views.transfer(both)[0][0].numpy() - points, axis=1)
    height, width = views.planes.shape[1:]
    corners = [views.planes.flatten(1)[0, flat_index(both[0].floor() + torch.tensor(step), height, width)]
               for step in ((0, 0), (0, 1), (1, 0), (1, 1))]
    return errors, np.asarray((torch.stack(corners) == corners[0]).all(0))


def record_of(calibration: ScoreCalibration, matcher_sha256: str) -> dict[str, Any]:
    """What scores.json has."""
    exits = {str(layers): {'a': each.a, 'b': each.b} for layers, each in calibration.exits.items()}
    return {'a': calibration.a, 'b': calibration.b, 'exits': exits, 'matcher_sha256': matcher_sha256}


@command('scores', NoPhotographsError, WeightsError)
def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog='training.scores', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('folder', type=Path, help='of the model')
    p.add_argument('--photographs', type=Path, required=True, help='folder of photographs.NN.tar, or of images')
    p.add_argument('--drawings', type=int, default=75, help='drawn images next to them (default 75)')
    p.add_argument('--pairs', type=int, default=400, help='of views (default 400: 5 to 10 minutes on two cores)')
    p.add_argument('--height', type=int, default=480)
    p.add_argument('--width', type=int, default=640)
    p.add_argument('--seed', type=int, default=1)
    options = p.parse_args(arguments)
    photographs = np.concatenate([load_photographs(options.photographs)[0], drawings(options.drawings, options.seed)])
    (options.folder / SCORES).unlink(missing_ok=True)  # it may be of former weights
    model = load_model(str(options.folder.absolute()))
    scenes = Scenes(torch.from_numpy(photographs), options.height, options.width, options.seed)
    found = list(matched_views(model, scenes, options.pairs))
    calibration = fitted(found)
    write_whole(options.folder / SCORES, json.dumps(record_of(calibration, model.matcher.sha256), indent=1).encode() + b'\n')
    _, errors = joined(found)
    easy = f'{sum(not part.layers for part in found)} of {options.pairs}'
    print(f'{calibration} of {len(errors)} matches, {np.mean(errors < RIGHT_PX):.1%} right; {easy} pairs need no '
          f'layer: {options.folder / SCORES}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
