"""Requirements on metrics, for a test that fails where a recording got worse."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lightglue_trt_ros.utils.errors import ConfigError, did_you_mean

from ..score.metrics import METRICS, PAIR_METRICS, Evaluation
from .summary import AGAINST_FIRST, GROUPS, written

NEEDED = {'Stereo': '--stereo', 'Depth': '--depth', 'Agreement with the first': '--compare', 'Live': '--live'}  # by group


@dataclass(frozen=True)
class Requirement:
    """A metric of the first matcher, or of those that have it, and the value that it may reach but not pass to the worse side."""

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
        match = re.fullmatch(r'\s*(?:stride(\d+)\.)?([^=\s]+)\s*=\s*(\S+)\s*', text)
        if match is None:
            raise ConfigError(f'{option} {text}: write it as NAME=VALUE or strideN.NAME=VALUE, for example pose_auc@10=40')
        stride, name, number = int(match[1] or 1), match[2], match[3]
        if name not in METRICS:
            question = did_you_mean(name, METRICS, 0.4) or 'none is similar.'
            raise ConfigError(f'{option} {text}: there is no metric {name}: {question} Metrics: {", ".join(METRICS)}')
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

    @property
    def label(self) -> str:
        return self.name if self.stride == 1 else f'stride{self.stride}.{self.name}'

    @property
    def limit(self) -> str:
        return f'{self.value:g} {METRICS[self.name].unit}'.rstrip()


def check(requirements: Sequence[Requirement], evaluation: Evaluation) -> list[str]:
    """One line for every requirement that is not met; one that could not be measured is not met.

    It is for the first matcher; one of live figures for the node, and one of agreement for every matcher that is compared.
    """
    return [line for each in requirements for line in _failures(each, evaluation)]


def _failures(requirement: Requirement, evaluation: Evaluation) -> list[str]:
    name, stride = requirement.name, requirement.stride
    if not evaluation.matchers:
        return [f'{requirement.label} could not be measured: no matcher ran; required {requirement.limit}']
    matchers = evaluation.matchers[:1]
    if name.startswith((*AGAINST_FIRST, *GROUPS['Live'])):
        matchers = [each for each in evaluation.matchers if name in each.summary(stride)] or matchers
    lines = (_failure(requirement, each.name, each.summary(stride).get(name), evaluation) for each in matchers)
    return [line for line in lines if line]


def _failure(requirement: Requirement, matcher: str, value: float | None, evaluation: Evaluation) -> str:
    """Why a matcher's value does not meet the requirement; empty where it does."""
    if value is None or math.isnan(value):
        return (f'{requirement.label} could not be measured for {matcher}{_why(requirement, evaluation)}; '
                f'required {requirement.limit}')
    metric = METRICS[requirement.name]
    if (value >= requirement.value) if metric.higher_is_better else (value <= requirement.value):
        return ''
    shown = written(requirement.name, value, True)
    if math.isinf(value) or float(shown.split()[0]) == requirement.value:  # rounding would hide the difference
        shown = f'{value:.9g} {metric.unit}'.rstrip()
    relation = 'under' if metric.higher_is_better else 'over'
    return f'{requirement.label} of {matcher} is {shown}, {relation} the required {requirement.limit}'


def _why(requirement: Requirement, evaluation: Evaluation) -> str:
    if requirement.stride not in evaluation.strides:
        return f': stride {requirement.stride} was not evaluated (evaluated: {", ".join(map(str, evaluation.strides))})'
    if requirement.stride > 1 and requirement.name not in PAIR_METRICS:
        return ': only stride 1 has it'
    names = {name for matcher in evaluation.matchers for name in matcher.summary(requirement.stride)}
    for group, option in NEEDED.items():
        if requirement.name.startswith(GROUPS[group]) and not any(name.startswith(GROUPS[group]) for name in names):
            return f': give {option}'
    return ' (no ground truth, no intrinsics, no pairs, or none with enough motion: see the notes)'
