"""The regression gate: metrics that must not be worse than a value, so that a team's CI can hold them."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...utils.errors import ConfigError
from ..metrics import METRICS
from ..results import Evaluation
from .summary import written


@dataclass(frozen=True)
class Requirement:
    """A metric of the first matcher, and the value that it may reach but not pass to the worse side."""

    name: str  # in METRICS
    value: float
    stride: int = 1

    @classmethod
    def parse(cls, text: str, *, over: bool = False) -> Requirement:
        """Read `pose_auc@10=40`, or `stride4.pose_auc@10=20` for another stride than 1.

        over: the text was given as what the metric must not exceed (`--fail-over`), which suits metrics that are better when
        lower; without it (`--fail-under`) as what it must reach, which suits the others.
        Raises ConfigError for an unknown metric, something that is no number, and a metric of the other direction.
        """
        option = '--fail-over' if over else '--fail-under'
        found = re.fullmatch(r'\s*(?:stride(\d+)\.)?([^=\s]+)\s*=\s*(\S+)\s*', text)
        if found is None:
            raise ConfigError(f'{option} {text}: write it as NAME=VALUE or strideN.NAME=VALUE, for example pose_auc@10=40')
        stride, name, number = int(found[1] or 1), found[2], found[3]
        if name not in METRICS:
            near = difflib.get_close_matches(name, METRICS, 1, 0.4)
            hint = f': did you mean {near[0]}?' if near else '.'
            raise ConfigError(f'{option} {text}: there is no metric {name}{hint} Metrics: {", ".join(METRICS)}')
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ConfigError(f'{option} {text}: {number} is not a number')
        if stride < 1:
            raise ConfigError(f'{option} {text}: strides count from 1')
        if METRICS[name].higher_is_better == over:
            better, other = ('higher', '--fail-under') if over else ('lower', '--fail-over')
            raise ConfigError(f'{option} {text}: {name} is better when {better}; use {other} {text}')
        return cls(name, value, stride)


def check(requirements: Sequence[Requirement], evaluation: Evaluation) -> list[str]:
    """One line for every requirement that the first matcher does not meet; one that could not be measured is not met."""
    failures = []
    for requirement in requirements:
        name, metric = requirement.name, METRICS[requirement.name]
        label = name if requirement.stride == 1 else f'stride{requirement.stride}.{name}'
        limit = f'{requirement.value:g} {metric.unit}'.rstrip()
        if not evaluation.matchers:
            failures.append(f'{label} could not be measured: no matcher ran; required {limit}')
            continue
        first = evaluation.matchers[0]
        value = first.summary(requirement.stride).get(name)
        if value is None or math.isnan(value):
            failures.append(f'{label} could not be measured for {first.name}{_why(requirement, evaluation)}; required {limit}')
        elif (value < requirement.value) if metric.higher_is_better else (value > requirement.value):
            relation = 'under' if metric.higher_is_better else 'over'
            shown = written(name, value, True)
            if math.isinf(value) or float(shown.split()[0]) == requirement.value:  # rounding would hide the difference
                shown = f'{value:.9g} {metric.unit}'.rstrip()
            failures.append(f'{label} of {first.name} is {shown}, {relation} the required {limit}')
    return failures


def _why(requirement: Requirement, evaluation: Evaluation) -> str:
    if requirement.stride not in evaluation.strides:
        return f': stride {requirement.stride} was not evaluated (evaluated: {", ".join(map(str, evaluation.strides))})'
    return ' (no truth, no intrinsics, or no pairs, or none that the truth resolves: see the notes)'
