"""What `--compare` and `--baselines` ask for, word by word: settings by name, each a variant of one configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ..core.config import PRECISIONS, MatcherConfig, check_names
from ..utils.errors import ConfigError

DYNAMIC = tuple(field.name for field in dataclasses.fields(MatcherConfig) if field.metadata['dynamic'])
COMPARABLE = ('weights', *DYNAMIC)
GIVEN = ('reference', 'keyframe_min_ratio', 'max_gap_s')  # each frame is matched with the one before, and the evaluation knows gaps


def variants(config: MatcherConfig, compare: Sequence[str]) -> dict[str, MatcherConfig]:
    """Settings by name: precisions, keypoint budgets, SETTING=VALUE and folders of engine sets, each a variant of `config`.

    `config` alone without any. Raises ConfigError for a word that is none of these.
    """
    found = {_name(word): _variant(config, word) for word in compare}
    if len(found) < len(compare):
        raise ConfigError(f'--compare {",".join(compare)}: each may stand there once')
    return found or {'ours': config}


def is_variant(word: str) -> bool:
    """Whether a word can be one of `variants`."""
    return word in PRECISIONS or word.isdigit() or '=' in word or _is_engine_set(word)


def settings_in_words(config: MatcherConfig, other: MatcherConfig | None = None) -> str:
    """The settings that two variants of one backend may differ in; with `other`, those in which they do."""
    values = {name.replace('_', ' '): getattr(config, name) for name in DYNAMIC
              if name not in GIVEN and (other is None or getattr(other, name) != getattr(config, name))}
    return ', '.join(f'{name} {value:g}' if isinstance(value, float) else f'{name} {value}' for name, value in values.items())


def _name(word: str) -> str:
    """For legends: weights and engine sets by their own names, refinement=affine as affine, depth_confidence=0.98 as it is."""
    setting, _, value = word.partition('=')
    if setting == 'weights':
        return Path(value).name or word
    if _is_engine_set(word):
        return Path(word).name
    return f'ours {value if value.isidentifier() else word}'


def _is_engine_set(word: str) -> bool:
    return (Path(word).expanduser() / 'manifest.json').is_file()


def _variant(config: MatcherConfig, word: str) -> MatcherConfig:
    if word in PRECISIONS:
        return dataclasses.replace(config, precision=word)
    if word.isdigit():
        return dataclasses.replace(config, max_keypoints=int(word))
    if '=' in word:
        return _with_setting(config, *word.split('=', 1))
    if not _is_engine_set(word):
        raise ConfigError(f'--compare {word}: give precisions ({", ".join(PRECISIONS)}), numbers of keypoints, SETTING=VALUE, or '
                          'folders of engine sets (with a manifest.json)')
    from ..engines.engine_store import ENGINES, MANIFEST, Artifact
    folder = Path(word).expanduser()
    try:
        identity = Artifact.of_folder(folder).identity
    except (OSError, ValueError) as error:
        raise ConfigError(f'--compare {word}: {folder / MANIFEST} cannot be used ({error}): build_engines makes it anew') from error
    if identity.kind != ENGINES or identity.name != folder.name:
        raise ConfigError(f'--compare {word}: it holds the {identity.kind} {identity.name}; give engines, in a folder called so')
    return dataclasses.replace(
        config, backend='tensorrt', engine_dir=str(folder.parent), precision=identity.matcher_precision,
        image_height=identity.image_height, image_width=identity.image_width, max_keypoints=identity.max_keypoints,
        weights=identity.weights_choice)


def _with_setting(config: MatcherConfig, name: str, text: str) -> MatcherConfig:
    """`config` with other weights, or with another value of one of the settings that may change while the node runs."""
    check_names([name], COMPARABLE)
    kind: type = type(getattr(config, name))
    try:
        changes = {name: kind(text)}
    except ValueError:
        raise ConfigError(f'--compare {name}={text}: the value must be a {kind.__name__}') from None
    return dataclasses.replace(config, **changes)
