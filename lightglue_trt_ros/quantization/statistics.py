"""A calibration from real pairs: what its layers read on average decides what it folds in, then its peaks are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import e4m3
from ..calibration import Calibration
from ..config import EngineSpec
from ..errors import EngineError
from ..graphs.folding import fold
from ..weights.networks import Weights
from .design import design
from .footage import Footage
from .moments import Moments, names_for
from .pairs import Pair
from .running import Tell, WholeMatcher, features_of, open_matcher

HEADROOM = 2.0  # frames that were not seen may go beyond the peaks; a floating-point format pays nothing for it
PEAKS_EVERY = 2  # pairs of which one is looked at for peaks: they have headroom


def steps(pairs: Sequence[Pair]) -> int:
    """How often `calibrate` runs the network."""
    return len(pairs) + len(pairs[::PEAKS_EVERY])


def calibrate(spec: EngineSpec, weights: Weights, footage: Sequence[Footage], pairs: Sequence[Pair], provenance: Mapping[str, Any],
              tell: Tell = lambda done: None) -> Calibration:
    """Measure on the pairs: moments in one pass, in another the peaks that remain of what they make. Nothing is in FP8 yet.

    `tell` hears how many of `steps(pairs)` are done. Raises EngineError, naming the tensor, where a peak is zero or not finite.
    """
    net = fold(weights.tensors)
    moments = Moments(names_for(net.layers))
    matcher = open_matcher(spec, weights, observe=True)
    for done, pair in enumerate(pairs, 1):
        moments.add(matcher.observe(*features_of(footage, pair)))
        tell(done)
    del matcher
    _check_finite({name: float(np.abs(values).max()) for name, values in moments.sums.items()}, zero=True)
    found = design(net, moments, provenance)
    matcher = open_matcher(spec, weights, found, observe=True)
    peaks = measure_peaks(matcher, footage, pairs[::PEAKS_EVERY], lambda done: tell(len(pairs) + done))
    _check_finite(peaks)
    return replace(found, peaks={name: HEADROOM * peak for name, peak in peaks.items()})


def measure_peaks(matcher: WholeMatcher, footage: Sequence[Footage], pairs: Sequence[Pair],
                  tell: Tell = lambda done: None) -> dict[str, float]:
    """The greatest magnitude of each tensor that may be rounded, sorted by name; NaN where one is NaN."""
    peaks: dict[str, float] = {}
    for done, pair in enumerate(pairs, 1):
        for name, values in matcher.observe(*features_of(footage, pair)).items():
            peaks[name] = float(np.maximum(peaks.get(name, 0.0), max(values.max(), -values.min())))  # NaN prevails
        tell(done)
    return dict(sorted(peaks.items()))


def saturated(calibration: Calibration, peaks: Mapping[str, float]) -> list[str]:
    """A line for each tensor of the FP8 members that other frames, with these `peaks`, take beyond what E4M3 holds."""
    lines = []
    for name, peak in peaks.items():
        limit = e4m3.LARGEST * e4m3.scale_of(calibration.peaks[name])
        if peak > limit and _belongs(name, calibration.fp8):
            lines.append(f'{name} reaches {peak:.4g}, {peak / limit:.2f} times what its scale holds ({limit:.4g}; '
                         f'calibrated peak {calibration.peaks[name]:.4g})')
    return lines


def _belongs(name: str, members: frozenset[str]) -> bool:
    return name in members or name.rpartition('.')[0] in members


def _check_finite(peaks: Mapping[str, float], zero: bool = False) -> None:
    wrong = [f'{name} ({peak:g})' for name, peak in peaks.items() if not np.isfinite(peak) or (peak <= 0 and not zero)]
    if wrong:
        shown = ', '.join(wrong[:8]) + (', …' if len(wrong) > 8 else '')
        raise EngineError(f'no scale can be found for {len(wrong)} tensors, whose peaks vanish or are not finite: {shown}; check '
                          'the weights (fetch_weights --list) and the frames')
