"""The live part of an evaluation: the recording played into the node over DDS, what comes back scored as the offline pass does."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from .config import MatcherConfig
from .errors import LightglueTrtError
from .evaluation.baselines import Correspondences
from .evaluation.results import MatcherResult
from .evaluation.scene import Scene
from .evaluation.tally import Tally
from .evaluation.twoview import PoseEstimator
from .features import Float32, FrameMatches
from .recordings.sequence import Recording
from .replay import Reception, replay
from .telemetry import PERCENTILES


class Spool:
    """Clouds in a temporary file: a long recording must not fill the memory. Written by one thread, read after it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self.count = 0

    def append(self, matches: FrameMatches) -> None:
        """Keep one cloud."""
        np.save(self._file, np.array([matches.reference_stamp, matches.stamp]))
        np.save(self._file, np.hstack([matches.reference_keypoints, matches.keypoints]).astype(np.float32))
        self.count += 1

    def __iter__(self) -> Iterator[tuple[float, float, Correspondences]]:
        """Stamps of the reference, NaN for an empty cloud, and of the current image; the points of both."""
        self._file.seek(0)
        for _ in range(self.count):
            reference, current = np.load(self._file)
            table: Float32 = np.load(self._file)
            yield float(reference), float(current), (table[:, :2], table[:, 2:])

    def close(self) -> None:
        """Give the space back."""
        self._file.close()


def evaluate_live(recording: Recording, config: MatcherConfig, scene: Scene, estimator: PoseEstimator, rate: float,
                  offline: MatcherResult, stopped: Callable[[], bool], tell: Callable[[str], None]) -> MatcherResult:
    """Play the recording at `rate` times its pace, and score every cloud as the pair of frames that it is; `tell` gets notes.

    A dropped frame is counted, and in no pair. Raises LightglueTrtError when the node does not start, or when nothing came.
    """
    spool = Spool()
    try:
        settings = dataclasses.replace(config, max_gap_s=scene.timeline.max_gap_s)
        got = replay(recording.path, settings, rate=rate, image_topic=recording.image_topic, keep=spool.append, stopped=stopped)
        if not spool.count:
            raise LightglueTrtError('the node published nothing: its log above says why')
        backend = got.diagnostics.get('backend', 'unknown')
        tally = Tally('ours live', f'the node over DDS at {rate:g} times the recorded pace: {backend}', True, scene, estimator)
        shared = _score(spool, tally, scene, offline)
    finally:
        spool.close()
    result = tally.finish()
    result.figures = _figures(got, spool.count, offline)
    tell(f'live: {len(got.sent)} frames sent, {spool.count} clouds received, {result.figures["dropped"]:.0f} frames dropped')
    if shared:
        live, before = np.mean(shared, axis=0)
        equal = sum(a == b for a, b in shared)
        tell(f'live: {len(shared)} pairs are the same as offline, {equal} of them with the same number of matches '
             f'(mean {live:.1f} live, {before:.1f} offline)')
    return result


def _score(spool: Spool, tally: Tally, scene: Scene, offline: MatcherResult) -> list[tuple[int, int]]:
    """Score every cloud; matches live and offline of the pairs that both saw."""
    known = {pair.frames: pair.matches for pair in offline.pairs.get(1, [])}
    previous, shared = None, []
    for reference_stamp, stamp, points in spool:
        current = scene.timeline.nearest(stamp)
        reference = scene.timeline.nearest(reference_stamp) if np.isfinite(reference_stamp) else previous
        previous = current
        if reference is None:
            continue  # an empty cloud, the first of all: nobody knows what it was matched with
        pair = tally.add(1, (reference, current), points)
        if pair.frames in known:
            shared.append((pair.matches, known[pair.frames]))
    return shared


def _figures(got: Reception, clouds: int, offline: MatcherResult) -> dict[str, float]:
    latencies = [value for value in got.latency_ms if np.isfinite(value)]
    figures = {'dropped': float(max(0, len(offline.pairs.get(1, [])) - clouds))}  # the others have no reference, or no image
    if latencies:
        figures |= {f'latency_ms_p{p}': float(np.percentile(latencies, p)) for p in PERCENTILES}
    return figures
