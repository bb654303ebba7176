"""Pose AUC with structure that stands still in the image, of both models and of KLT; or a picture of every kind."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.real_images import find_sequences
from benchmarks.recorded_pairs import AS_RECORDED, add_kind_options
from lightglue_trt_eval.demo.flight import Flight
from lightglue_trt_eval.evaluate import evaluate_recording
from lightglue_trt_eval.images.degradation import degraded
from lightglue_trt_eval.images.static_structure import STRUCTURES
from lightglue_trt_eval.options import SETTINGS, EvaluationOptions
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.types import UInt8
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.utils.commands import log
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import LightglueTrtError
from lightglue_trt_ros.utils.files import write_output

DATA = 'any recording with ground truth'
METRIC = 'pose_auc@10'
KINDS = (AS_RECORDED, 'border', 'dots35', 'dots', 'jpeg10', 'hot')
SHOWN_FRAME = 20  # of the flight
COLUMNS, CAPTION_PX, GAP_PX = 3, 42, 4


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which frames, and which kinds; or the picture."""
    add_kind_options(parser, '1,4', KINDS)
    parser.add_argument('--models', type=lambda text: text.split(','), default='ours,ours_light', metavar='NAME,…',
                        help='default: %(default)s')
    parser.add_argument('--sheet', type=Path, metavar='FILE', help='write a picture of every kind instead, .png or .webp')


def measure(args: argparse.Namespace, config: MatcherConfig) -> dict[str, Any]:
    """Evaluate each recording with each kind, as `evaluate_bag --degrade` does. Raises BagError, EngineError."""
    if args.sheet:
        encoded = cv2.imencode(args.sheet.suffix, contact_sheet(), [cv2.IMWRITE_WEBP_QUALITY, 85])[1]
        write_output(args.sheet, encoded.tobytes())
        log.info(f'{args.sheet}: {len(STRUCTURES)} kinds')
        return {'kinds': list(STRUCTURES)}
    default, figures = MatcherConfig(), list[dict[str, Any]]()
    size = (config.image_height, config.image_width)
    given = size != (default.image_height, default.image_width)
    matcher = {name: getattr(config, name) for name in SETTINGS} | {'weights': args.models[0]}
    for name, path in find_sequences(args.data).items():
        for kind in args.kinds:
            options = EvaluationOptions(
                strides=args.strides, baselines=('klt',), compare=tuple(f'weights={model}' for model in args.models),
                max_frames=args.frames, degrade=() if kind == AS_RECORDED else (kind,), matcher=matcher,
                height=size[0] if given else None, width=size[1] if given else None)
            recording = open_recording(path, args.image_topic)
            with tempfile.TemporaryDirectory() as folder:
                evaluation, failures = evaluate_recording(recording, options, Path(folder), lambda: False)
            if failures:
                raise LightglueTrtError(f'{path} with {kind}: {failures[0]}')
            found = {'recording': name, 'kind': kind, 'frames': evaluation.recording['frames'], METRIC: {
                each.name: {stride: each.summary(stride).get(METRIC) for stride in args.strides} for each in evaluation.matchers}}
            figures.append(found)
            log.info(' | '.join(row_of(found)))
    print_table(f'AUC@10, strides {" / ".join(map(str, args.strides))}', ['recording', 'kind', *figures[0][METRIC]],
                [row_of(each) for each in figures])
    return {'evaluations': figures}


def row_of(found: dict[str, Any]) -> list[str]:
    """Recording, kind, and the figures of each matcher at all strides."""
    return [found['recording'], found['kind'], *(
        ' / '.join('—' if value is None else f'{value:.1f}' for value in by_stride.values())
        for by_stride in found[METRIC].values())]


def contact_sheet() -> UInt8:
    """A frame of the demo's flight with each kind of structure, half its size, under its name: gray (H, W)."""
    flight = Flight()
    before, image = (flight.frame(index).image for index in (SHOWN_FRAME - 1, SHOWN_FRAME))
    tiles = []
    for kind in STRUCTURES:
        seen = cv2.resize(degraded(image, kind, number=SHOWN_FRAME, before=lambda: before), None, fx=0.5, fy=0.5,
                          interpolation=cv2.INTER_AREA)
        tile = cv2.copyMakeBorder(seen, CAPTION_PX, GAP_PX, GAP_PX, GAP_PX, cv2.BORDER_CONSTANT, value=(255.0,))
        cv2.putText(tile, kind, (GAP_PX, CAPTION_PX - 10), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (0.0,), 2, cv2.LINE_AA)
        tiles.append(tile)
    tiles += [np.full_like(tiles[0], 255)] * (-len(tiles) % COLUMNS)
    return np.vstack([np.hstack(tiles[row:row + COLUMNS]) for row in range(0, len(tiles), COLUMNS)])
