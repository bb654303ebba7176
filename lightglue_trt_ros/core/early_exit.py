"""Early exits: where LightGlue may stop, and when (Lindenberger et al., LightGlue, ICCV 2023, section 3.3).

Exit 0 stands before the first layer: it matches descriptors as the extractor gives them. `depth_zero` decides about it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from ..utils.errors import ConfigError

LAYERS = 6  # of the default model
PUBLISHED = (0, 4, 5, 6, 9)  # layers that have run at each exit of the published network; why: docs/experiments.md
ALL_LAYERS = -1.0  # a depth_confidence that never stops early
EARLY_MATCH_SCORE = 0.25  # least score of a match at an early exit, whose weak ones are more often wrong (docs/experiments.md)
DEPTH_CONFIDENCE = 0.9  # share of confident points that stops; 0.8 loses poses where structure stands (docs/experiments.md)


@dataclass(frozen=True)
class EarlyExits:
    """The matcher as a chain of stages, with an exit after each, and one before the first where the ends begin with 0.

    One stage of all layers is the network as a whole. Raises ConfigError unless the ends ascend, and some layer runs at the last.
    """

    ends: tuple[int, ...] = (0, 3, 4, LAYERS)  # layers that have run at each exit, all at the last

    def __post_init__(self) -> None:
        if not self.spans or any(not low < high for low, high in itertools.pairwise((-1, *self.ends))):
            raise ConfigError(f'the stages end after layers {self.ends}: give ascending numbers, the last one the number of layers')

    @classmethod
    def of(cls, layers: int) -> EarlyExits:
        """The usual exits of a network of so many layers: those of the published one, in proportion."""
        return cls(tuple(sorted({max(min(1, end), math.floor(layers * end / PUBLISHED[-1] + 0.5)) for end in PUBLISHED})))

    @property
    def at_zero(self) -> bool:
        """Whether there is an exit before the first layer."""
        return self.ends[0] == 0

    @property
    def after_layers(self) -> tuple[int, ...]:
        """The ends of all stages: the exits without that before the first layer."""
        return tuple(end for end in self.ends if end)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages' graphs, first to last: matcher for one alone, else matcher-1-4, matcher-5 and so on, by their layers."""
        if len(self.spans) == 1:
            return ('matcher',)
        return tuple(f'matcher-{first + 1}-{end}' if first + 1 < end else f'matcher-{end}' for first, end in self.spans)

    @property
    def heads(self) -> tuple[str, ...]:
        """The assignments of the early exits, in their order; the last stage brings its own."""
        return tuple(map(assignment_after, self.ends[:-1]))

    def graphs(self, own_attention: bool = False) -> tuple[str, ...]:
        """The matcher's graphs, cut at each attention where that is a kernel of ours."""
        return (self.blocks if own_attention else self.stages) + self.heads

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The layers of each stage: from the first, counted from 0, to before the second."""
        return tuple(itertools.pairwise((0, *self.after_layers)))

    @property
    def blocks(self) -> tuple[str, ...]:
        """The engines of all layers where these are cut at each attention: start, self-1, cross-1, self-2 and so on."""
        return ('start', *(f'{name}-{layer}' for layer in range(1, self.ends[-1] + 1) for name in ('self', 'cross')))

    def __str__(self) -> str:
        """For people: all 9 layers, or exits after 0, 4, 5, 6 and 9 layers."""
        *early, last = self.ends
        return f'exits after {", ".join(map(str, early))} and {last} layers' if early else f'all {last} layers'


def assignment_after(layers: int) -> str:
    """Name of the assignment of an early exit."""
    return f'assignment-{layers}'


def confidence_threshold(layer: int, layers: int) -> float:
    """Confidence from which a point counts as confident after `layer` (from 0): later layers need less."""
    return min(1.0, max(0.0, 0.8 + 0.1 * math.exp(-4.0 * layer / layers)))


def stops(share: float, depth_confidence: float) -> bool:
    """Whether enough points are confident to stop; never for ALL_LAYERS or NaN."""
    return depth_confidence >= 0 and share > depth_confidence
