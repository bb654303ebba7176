"""A fleet's rows: one for each recording that was asked for, whatever became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .discovery import Listed

EVALUATED, FAILED, REPEATED, WAITING = 'evaluated', 'failed', 'repeated', 'waiting'


@dataclass
class FleetRow:
    """A recording; of what was not evaluated there is the reason alone."""

    name: str
    url: str
    status: str  # one of the four above
    reason: str = ''
    sha256: str = ''  # the recording's fingerprint
    key: str = ''  # of the result
    report: str = ''  # its page, relative to the fleet's folder
    facts: dict[str, Any] = field(default_factory=dict)  # as `facts_of` gives them

    @classmethod
    def of(cls, listed: Listed, status: str, reason: str = '', **known: Any) -> FleetRow:
        return cls(listed.name, listed.url, status, reason, **known)

    @property
    def first(self) -> dict[str, Any]:
        """The matcher that the fleet is about; empty where nothing was evaluated."""
        return next(iter(self.facts.get('matchers', [])), {})

    def figure(self, metric: str, stride: int = 1, matcher: str | None = None) -> float | None:
        """A metric of a matcher, of the first by default; None where it is not known."""
        matchers = [each for each in self.facts.get('matchers', []) if matcher in (None, each['name'])]
        value = matchers[0]['summary'].get(str(stride), {}).get(metric) if matchers else None
        return None if value is None else float(value)


def facts_of(report: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What a row says of an evaluation, from its report.json: plain values."""
    return {'recording': {name: value for name, value in report['recording'].items() if name != 'path'},
            'strides': report['strides'], 'notes': report['notes'], 'seconds': round(seconds, 1),
            'matchers': [{'name': matcher['name'], 'description': matcher['description'], 'ours': matcher['ours'],
                          'summary': matcher['summary'],
                          'pairs': {stride: len(columns['frame']) for stride, columns in matcher['pairs'].items()}}
                         for matcher in report['matchers']]}
