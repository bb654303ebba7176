"""Who takes part in an evaluation: the frontend itself with one or several settings, and the baselines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ..config import PRECISIONS, MatcherConfig, check_names
from ..errors import ConfigError, EngineError, LightglueTrtError
from ..features import UInt8
from ..frontend import FrameMatcher
from ..selection import Opened, open_backend
from .baselines import BASELINES, Correspondences

NEVER_S = 3600.0  # a gap that no recording has: which frames belong together is the evaluation's to say


class Sighting(NamedTuple):
    """What a contestant found in a frame."""

    points: Correspondences  # pixels of the reference and of the current image
    stage_ms: dict[str, float]
    layers: int | None = None  # of LightGlue that ran


class Contestant(Protocol):
    """Frames in, correspondences with the frame before out."""

    name: str
    description: str
    ours: bool

    def process(self, image: UInt8, stamp: float) -> Sighting | None:
        """Match a gray image, uint8 (H, W), with the one before; None for a first one."""

    def reset(self) -> None:
        """Forget the last image."""

    def close(self) -> None:
        """Release everything."""


class Frontend:
    """FrameMatcher, each frame against the one before."""

    ours = True

    def __init__(self, name: str, opened: Opened, config: MatcherConfig) -> None:
        self.name, self._backend = name, opened.backend
        self.description = f'{opened.backend.description}, match threshold {config.match_threshold:g}'
        self._frames = FrameMatcher(self._backend, dataclasses.replace(config, reference='previous', max_gap_s=NEVER_S))

    def process(self, image: UInt8, stamp: float) -> Sighting | None:
        found = self._frames.process(image, stamp)
        if found is None:
            return None
        return Sighting(Correspondences(found.reference_keypoints, found.keypoints), found.stage_ms, found.layers)

    def reset(self) -> None:
        self._frames.reset()

    def close(self) -> None:
        self._backend.close()


class Baseline:
    """One of BASELINES with as many keypoints as ours. Raises ConfigError."""

    ours = False

    def __init__(self, key: str, features: int) -> None:
        if key not in BASELINES:
            raise ConfigError(f'there is no baseline {key!r}: use {", ".join(BASELINES)}')
        self._matcher = BASELINES[key](features)
        self.name, self.description = key.upper(), str(getattr(self._matcher, 'name', key))

    def process(self, image: UInt8, stamp: float) -> Sighting | None:
        points = self._matcher.process(image)
        return None if points is None else Sighting(points, {})

    def reset(self) -> None:
        self._matcher.reset()

    def close(self) -> None:
        """Nothing is held."""


def variants(config: MatcherConfig, compare: Sequence[str]) -> dict[str, MatcherConfig]:
    """Settings by name: precisions, keypoint budgets, SETTING=VALUE and bundles' folders, each a variant of `config`.

    `config` alone without any. Raises ConfigError for a word that is none of these.
    """
    found = {f'ours {_short(word)}': _variant(config, word) for word in compare}
    if len(found) < len(compare):
        raise ConfigError(f'--compare {",".join(compare)}: each may stand there once')
    return found or {'ours': config}


def open_frontends(wanted: dict[str, MatcherConfig]) -> tuple[list[Frontend], list[str]]:
    """The frontends that can be had here, and a line for each that cannot or that runs otherwise than asked.

    Raises what the only one, or the last one, raised where none can be had.
    """
    opened: list[Frontend] = []
    notes: list[str] = []
    failure: LightglueTrtError | None = None
    for name, config in wanted.items():
        try:
            found = open_backend(config)
        except EngineError as error:
            failure = error
            notes.append(f'{name} is unavailable: {error}')
            continue
        opened.append(Frontend(name, found, config))
        notes += [f'{name}: {found.warning}'] if found.warning else []
    if not opened and failure is not None:
        raise failure
    return opened, notes


def _short(word: str) -> str:
    """For legends: a bundle's own name, refinement=affine as affine, depth_confidence=0.98 as it is."""
    if _is_bundle(word):
        return Path(word).name
    value = word.partition('=')[2]
    return value if value.isidentifier() else word


def _is_bundle(word: str) -> bool:
    return (Path(word).expanduser() / 'manifest.json').is_file()


def _variant(config: MatcherConfig, word: str) -> MatcherConfig:
    if word in PRECISIONS:
        return dataclasses.replace(config, precision=word)
    if word.isdigit():
        return dataclasses.replace(config, max_keypoints=int(word))
    if '=' in word:
        return _with_setting(config, *word.split('=', 1))
    if not _is_bundle(word):
        raise ConfigError(f'--compare {word}: give precisions ({", ".join(PRECISIONS)}), numbers of keypoints, SETTING=VALUE, or '
                          'folders of bundles (with a manifest.json)')
    from ..engines.artifacts import ENGINES, MANIFEST, read_manifest
    folder = Path(word).expanduser()
    try:
        identity = read_manifest(folder).identity
    except (OSError, ValueError) as error:
        raise ConfigError(f'--compare {word}: {folder / MANIFEST} cannot be used: {error}') from error
    if identity.kind != ENGINES or identity.name != folder.name:
        raise ConfigError(f'--compare {word}: it holds the {identity.kind} {identity.name}; give engines, in a folder called so')
    return dataclasses.replace(
        config, backend='tensorrt', engine_dir=str(folder.parent), precision=identity.matcher_precision,
        image_height=identity.image_height, image_width=identity.image_width, max_keypoints=identity.max_keypoints,
        weights=identity.weights_choice)


def _with_setting(config: MatcherConfig, name: str, text: str) -> MatcherConfig:
    """`config` with another value of one of the settings that may change while the node runs."""
    check_names([name], [field.name for field in dataclasses.fields(config) if field.metadata['dynamic']])
    kind: type = type(getattr(config, name))
    try:
        changes = {name: kind(text)}
    except ValueError:
        raise ConfigError(f'--compare {name}={text}: the value must be a {kind.__name__}') from None
    return dataclasses.replace(config, **changes)
