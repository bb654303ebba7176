"""Networks in turn: one extractor and matcher are open at a time, and go over the recording by themselves.

So memory does not grow with what is compared. The first turn has the baselines; what its first matcher saw waits in a file.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ..core.config import MatcherConfig
from ..core.masks import Mask
from ..core.types import Float32
from ..utils.console import progress
from ..utils.errors import EngineError, LightglueTrtError
from .baselines import Correspondences
from .costs import WallTime
from .evaluator import Evaluator
from .methods import Contestant, Sighting, by_networks, open_frontends
from .results import MatcherResult

logger = logging.getLogger(__name__)


class Turns(NamedTuple):
    """What all turns found."""

    results: list[MatcherResult]  # as they were asked for, then the baselines
    covered: int | None  # frames that the last turn came to, where it was interrupted or failed; None: all
    failure: str  # why it failed


class FirstSightings:
    """The first matcher's points of each pair, for the matchers of later turns: in a file, as there is no end of them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places: dict[tuple[int, tuple[int, int]], tuple[int, int]] = {}  # beginning and points, by stride and pair

    def __call__(self, stride: int, pair: tuple[int, int], sighting: Sighting) -> Sighting:
        """Of a pair that is new: `sighting`, which is kept; else the one that was. Raises LightglueTrtError on a full disk."""
        try:
            if (place := self._places.get((stride, pair))) is not None:
                self._file.seek(place[0])
                points = np.frombuffer(self._file.read(16 * place[1]), np.float32).reshape(-1, 4)
                return Sighting(Correspondences(points[:, :2], points[:, 2:]), {})
            rows: Float32 = np.hstack(sighting.points[:2]).astype(np.float32)
            self._places[stride, pair] = self._file.seek(0, 2), len(rows)
            if self._file.write(rows.tobytes()) < rows.nbytes:
                raise OSError('the disk is full')
        except OSError as error:
            raise LightglueTrtError(f'the matches that others are compared with cannot be kept: {error.strerror or error}; make '
                                    'room, or choose another --out') from error
        return sighting


def evaluate_in_turn(wanted: dict[str, MatcherConfig], baselines: Sequence[Contestant], evaluator: Callable[..., Evaluator],
                     strides: Sequence[int], folder: Path, *, mask: Mask | None = None, wall: WallTime, note: Callable[[str], None]
                     ) -> Turns:
    """Let all variants and baselines go over the recording; those that share their networks go together.

    `evaluator` takes the contestants of a turn, and `first`; in `folder` there is room for a file; `note` hears what cannot be had.
    Raises EngineError where none of `wanted` can be had.
    """
    groups, others, found = by_networks(wanted), list(baselines), dict[str, MatcherResult]()
    several, turn = len(groups) > 1, None
    unavailable = EngineError('nothing was asked for')
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        first = FirstSightings(file) if several else None
        while groups and (turn is None or not turn.interrupted):
            group = groups.pop(0)
            who = ', '.join(group)
            try:
                with wall.spent('opening'):
                    frontends, warning = open_frontends(group, mask)
            except EngineError as error:
                unavailable = error
                note(f'{who} {"is" if len(group) == 1 else "are"} unavailable: {error}')
                continue
            if warning:
                note(warning)
            contestants, others = [*frontends, *others], []
            for contestant in contestants:
                logger.info(f'{contestant.name}: {contestant.description}')
            turn = evaluator(contestants, first=first)
            try:
                with progress(f'evaluating frames{f" with {who}" if several else ""}', len(turn)) as tell:
                    found |= {result.name: result for result in turn.run(strides, tell)}
            finally:
                for contestant in contestants:
                    contestant.close()
    if turn is None:
        raise unavailable
    if groups:
        note(f'{", ".join(name for group in groups for name in group)}: not begun')
    order = [*wanted, *(each.name for each in baselines)]
    return Turns([found[name] for name in order if name in found], turn.covered if turn.interrupted else None, turn.failure)
