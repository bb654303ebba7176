"""What has to be the same wherever a fleet is evaluated: the package's code and the weights."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from lightglue_trt_ros import __version__

from ..weights.pairs import identify_pair

PACKAGE = Path(__file__).resolve().parents[1]


class Installation(NamedTuple):
    """A package and a pair of weights."""

    build: str
    weights: str  # the pair's name
    extractor_sha256: str
    matcher_sha256: str

    def differences(self, other: Installation) -> list[str]:
        """What `other` has differently, one line each."""
        named = zip(('package', 'weights', "the extractor's sha256", "the matcher's sha256"), self, other, strict=True)
        return [f'{name} {there[:16]}, not {here[:16]}' for name, here, there in named if name != 'weights' and here != there]


@lru_cache(maxsize=1)
def build() -> str:
    """The package's version and the beginning of its source's sha256: 0.1.0-3f2a9c01. Equal copies have the same."""
    total = hashlib.sha256()
    for path in sorted(PACKAGE.rglob('*.py')):
        total.update(path.relative_to(PACKAGE).as_posix().encode() + b'\0' + path.read_bytes())
    return f'{__version__}-{total.hexdigest()[:8]}'


def installation(weights: str) -> Installation:
    """What is installed here, and the pair that the setting `weights` names. Raises ConfigError, WeightsError."""
    pair = identify_pair(weights)
    return Installation(build(), pair.name, pair.extractor_sha256, pair.matcher_sha256)
