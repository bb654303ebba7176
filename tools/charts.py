"""Charts in docs/images/, from the files in docs/figures/; `make figures` writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np

from lightglue_trt_eval.score.metrics import DEVIATION_EDGES
from tools import diagrams
from tools.figures import document, load
from tools.svg import WIDTH, Svg

RECORDINGS = ('kitti_short_1', 'kitti_short_2', 'hololens', 'tartanair_hospital')
MATCHERS = {'ours': 'c0', 'ours_light': 'c1', 'SIFT': 'c2', 'KLT': 'c3', 'ORB': 'c4'}
STAGES = {'extract': 'c0', 'match': 'c2', 'place': 'c4'}
LEFT, RIGHT = 84, WIDTH - 14


def auc() -> str:
    """Pose AUC@10 with its interval: consecutive frames filled, four apart open."""
    svg = Svg('Pose AUC at 10 degrees of each matcher on four recordings, with 95 % intervals', 640)
    svg.text(14, 22, 'Pose AUC@10, percent: right is better', 'bold')
    svg.text(14, 40, '● consecutive frames   ○ four frames apart   ─ 95 % interval', 'small soft')
    y = 66.0
    for recording in RECORDINGS:
        svg.text(14, y, recording, 'bold')
        for tick in range(0, 101, 25):
            svg.line(_at(tick, 0, 100), y + 6, _at(tick, 0, 100), y + 116, 'grid')
        y += 24
        for label, kind in MATCHERS.items():
            matcher = next(each for each in document(f'recordings/{recording}')['matchers'] if label_of(each['name']) == label)
            svg.text(LEFT - 8, y + 5, label, 'small', 'end')
            for stride, shift, filled in (('1', -3, True), ('4', 5, False)):
                value = matcher['summary'].get(stride, {}).get('pose_auc@10')
                if value is None:
                    continue
                ends = matcher['intervals'][stride].get('pose_auc@10', {})
                low, high = ends.get('low') or value, ends.get('high') or value
                svg.line(_at(low, 0, 100), y + shift, _at(high, 0, 100), y + shift, kind, 2)
                svg.add('circle', kind if filled else f'{kind} open', cx=_at(value, 0, 100), cy=y + shift, r=4 if filled else 3.2,
                        stroke_width=1.6)
            y += 21
        y += 16
    for tick in range(0, 101, 25):
        svg.text(_at(tick, 0, 100), y - 12, str(tick), 'small soft', 'middle')
    return str(svg)


def label_of(name: str) -> str:
    """The short name of a matcher of a report."""
    return next((label for label in ('ours_light', 'ours', 'SIFT', 'ORB', 'KLT') if label.lower() in name.lower()), name)


def calibration() -> str:
    """Share of matches within so many of their standard deviations, against the normal distribution."""
    svg = Svg('Share of matches within so many of their standard deviations, against a normal distribution', 330)
    svg.text(14, 22, 'Matches within … standard deviations, percent', 'bold')
    bottom, top, levels = 262.0, 44.0, DEVIATION_EDGES[1:-1]

    def point(level: float, share: float) -> str:
        return f'{_at(level, 0, 3):.4g},{bottom - (bottom - top) * share / 100:.4g}'

    for tick in range(0, 101, 25):
        y = bottom - (bottom - top) * tick / 100
        svg.line(LEFT, y, RIGHT, y, 'grid')
        svg.text(LEFT - 8, y + 5, str(tick), 'small soft', 'end')
    for level in range(4):
        svg.text(_at(level, 0, 3), bottom + 18, str(level), 'small soft', 'middle')
    shown = levels[levels <= 3.0001]
    svg.add('polyline', 'axis open', points=' '.join(point(x, 100 * math.erf(x / math.sqrt(2))) for x in [0.0, *shown]),
            stroke_width=7, stroke_opacity=0.35)
    names = []
    for kind, recording in zip(('c0', 'c1', 'c2', 'c3'), RECORDINGS, strict=True):
        matcher = next(each for each in document(f'recordings/{recording}')['matchers'] if label_of(each['name']) == 'ours')
        histogram = np.asarray(matcher['deviation_histogram'], float)
        shares = 100 * np.cumsum(histogram)[:-1] / histogram.sum()
        pairs = zip([0.0, *shown], [0.0, *shares[:len(shown)]], strict=True)
        svg.add('polyline', f'{kind} open', points=' '.join(point(x, share) for x, share in pairs), stroke_width=2)
        names.append((kind, recording))
    svg.legend(14, bottom + 42, names[:2], 190)
    svg.legend(14, bottom + 60, names[2:], 190)
    svg.text(RIGHT - 4, bottom - 12, 'wide gray line: a normal distribution', 'small soft', 'end')
    return str(svg)


def gpu_times() -> str:
    """Milliseconds of the GPU by stage."""
    rows = load('gpu_times').rows
    svg = Svg('Milliseconds of the GPU for a frame by stage, on 8, 16 and 132 multiprocessors of an H200',
              74 + 30 * len(rows))
    svg.text(14, 22, 'GPU time of a frame, milliseconds (measured)', 'bold')
    left, longest, y = 150.0, max(float(row[5]) for row in rows), 52.0
    for model, multiprocessors, *times in rows:
        svg.text(left - 8, y + 5, f'{model}, {multiprocessors} SM', 'small', 'end')
        x = left
        for kind, value in zip(STAGES.values(), times, strict=False):
            length = (RIGHT - 40 - left) * float(value) / longest
            svg.add('rect', f'{kind} bar', x=x, y=y - 9, width=length, height=18)
            x += length
        svg.text(x + 6, y + 5, f'{float(times[3]):.1f}', 'small')
        y += 30
    svg.legend(14, y + 6, [(kind, {'place': 'refine and geometry'}.get(stage, stage)) for stage, kind in STAGES.items()])
    return str(svg)


def boards() -> str:
    """Predicted times of boards, hollow, and measured ones of an H200, filled; logarithmic."""
    predicted, measured = load('boards'), load('gpu_times').rows
    lines = [(row[0], [float(part) for part in re.findall(r'[\d.]+', predicted.cell(row[0], f'{model}: together'))], kind)
             for row in predicted.rows for kind, model in (('c0', 'ours'), ('c1', 'ours_light'))]
    shares = list(dict.fromkeys(row[1] for row in measured))
    svg = Svg('Milliseconds of the GPU for a frame: predicted for boards, measured on an H200',
              116 + 18 * len(lines) + 24 * len(shares))
    svg.text(14, 22, 'GPU time of a frame, milliseconds', 'bold')
    svg.text(14, 40, 'hollow: predicted, from bound to estimate · filled: measured', 'small soft')
    left, y = 158.0, 66.0

    def at(ms: float) -> float:
        return left + (RIGHT - 26 - left) * math.log(ms / 0.3) / math.log(30 / 0.3)

    bottom = y + 18 * len(lines) + 24 * len(shares)
    for tick in (0.3, 1, 3, 10, 30):
        svg.line(at(tick), y - 14, at(tick), bottom, 'grid')
        svg.text(at(tick), bottom + 16, f'{tick:g}', 'small soft', 'middle')
    for number, (board, (low, high), kind) in enumerate(lines):
        if number % 2 == 0:
            svg.text(left - 8, y + 14, board, 'small', 'end')
        svg.add('rect', f'{kind} open dashed', x=at(low), y=y - 5, width=at(high) - at(low), height=11, stroke_width=1.6)
        y += 18
    for share in shares:
        svg.text(left - 8, y + 9, f'H200, {share} SM', 'small', 'end')
        for model, kind in (('ours', 'c0'), ('ours_light', 'c1')):
            svg.add('circle', kind, cx=at(float(load('gpu_times').cell(f'{model}, {share}', 'together'))), cy=y + 4, r=5)
        y += 24
    svg.legend(14, bottom + 38, [('c0', 'ours'), ('c1', 'ours_light')])
    return str(svg)


def propagation() -> str:
    """Mean track length without and with propagation, and KLT's."""
    rows = load('propagation').rows
    svg = Svg('Mean track length in frames without and with track propagation, and of KLT', 68 + 74 * len(rows))
    svg.text(14, 22, 'Mean track length, frames', 'bold')
    y, longest = 44.0, 12.0
    for recording, off, on, klt, *_ in rows:
        svg.text(14, y + 4, recording, 'small')
        for kind, value in (('c1', off), ('c0', on), ('c3', klt)):
            y += 18
            svg.add('rect', f'{kind} bar', x=14, y=y - 8, width=340 * float(value) / longest, height=14)
            svg.text(20 + 340 * float(value) / longest, y + 4, value, 'small')
        y += 20
    svg.legend(14, y + 8, [('c1', 'no propagation'), ('c0', 'propagation'), ('c3', 'KLT')])
    return str(svg)


def static() -> str:
    """Pose AUC@10 on recordings in which something stands still."""
    rows = load('static').rows
    svg = Svg('Pose AUC at 10 degrees with structure that stands still, for ours, ours_light and KLT', 66 + 58 * len(rows))
    svg.text(14, 22, 'Pose AUC@10, percent', 'bold')
    y = 46.0
    for recording, *values in rows:
        svg.text(14, y, 'as recorded' if recording == 'none' else recording, 'small')
        for kind, value in zip(('c0', 'c1', 'c3'), values, strict=True):
            y += 13
            if value:
                svg.add('rect', f'{kind} bar', x=14, y=y - 6, width=3.6 * float(value), height=10)
                svg.text(18 + 3.6 * float(value), y + 4, value, 'small')
        y += 19
    svg.legend(14, y + 4, [('c0', 'ours'), ('c1', 'ours_light'), ('c3', 'KLT')])
    return str(svg)


def peers() -> str:
    """Pose AUC@10 of learned matchers, mean over three strides: refined filled, as published open."""
    rows = load('peers').rows
    svg = Svg('Pose AUC at 10 degrees of learned matchers on two recordings, refined and without refinement', 132 + 24 * len(rows))
    svg.text(14, 22, 'Pose AUC@10, mean over strides 1, 2, 4', 'bold')
    svg.text(14, 40, '● refined   ○ without refinement', 'small soft')
    left, y, last = 190.0, 48.0, ''
    for recording, matcher, *cells, _ in rows:
        if recording != last:
            y, last = y + 22, recording
            svg.text(14, y, recording, 'bold')
            y += 22
        svg.text(left - 8, y + 5, matcher.replace(' + ', '+'), 'small', 'end')
        svg.line(left, y, RIGHT, y, 'grid')
        for cell, filled in zip(cells, (True, False), strict=True):
            values = [float(value) for value in re.findall(r'[\d.]+', cell)]
            if values:
                x = left + (RIGHT - left) * float(np.mean(values)) / 100
                svg.add('circle', 'c0' if filled else 'c0 open', cx=x, cy=y, r=5, stroke_width=1.8)
        y += 22
    for tick in range(0, 101, 25):
        svg.text(left + (RIGHT - left) * tick / 100, y + 4, str(tick), 'small soft', 'middle')
    return str(svg)


def _at(value: float, low: float, high: float) -> float:
    return LEFT + (RIGHT - LEFT) * (min(max(value, low), high) - low) / (high - low)


CHARTS: dict[str, Callable[[], str]] = {
    'auc.svg': auc, 'peers.svg': peers, 'calibration.svg': calibration, 'track-lengths.svg': propagation, 'static.svg': static,
    'gpu-times.svg': gpu_times, 'boards.svg': boards, 'rooms.svg': diagrams.rooms, 'frame.svg': diagrams.frame,
    'topics.svg': diagrams.topics, 'setups.svg': diagrams.setups}
