"""The list of sources: who made the images, under which licence, and which exact file was fetched."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

KINDS = ('debian', 'git', 'python', 'folder')


class DataError(Exception):
    """A source, an image or a pack is not what it should be."""


@dataclass(frozen=True)
class Exclude:
    """A glob over members' paths, and why those images are left out."""

    pattern: str
    reason: str


@dataclass(frozen=True)
class Source:
    """One package or repository.

    `digest` is the sha256 of the .deb or wheel, or the commit of a repository. `include` limits the members to globs; `licences`
    refines `licence` by glob, first match wins. `crops` is the most crops that one large photograph gives, `limit` the most crops
    in all, `contrast` the least standard deviation of gray levels where a source has many dull images. `url` is the repository's,
    or the folder's path.
    """

    name: str
    kind: str
    version: str
    licence: str
    stated_in: str
    digest: str
    url: str = ''
    attribution: str = ''
    crops: int = 1
    limit: int = 0
    contrast: float = 0.0
    include: tuple[str, ...] = ()
    excludes: tuple[Exclude, ...] = ()
    licences: tuple[tuple[str, str], ...] = ()

    def includes(self, member: str) -> bool:
        """Whether the member is among the images that the list takes from this source."""
        return not self.include or any(fnmatch.fnmatchcase(member, pattern) for pattern in self.include)

    def refusal(self, member: str) -> str | None:
        """Why the list itself leaves the member out; None where it does not."""
        for exclude in self.excludes:
            if fnmatch.fnmatchcase(member, exclude.pattern):
                return exclude.reason
        return None

    def licence_of(self, member: str) -> str:
        """The SPDX licence of one member."""
        return next((licence for pattern, licence in self.licences if fnmatch.fnmatchcase(member, pattern)), self.licence)


def _source(entry: dict[str, Any], where: str) -> Source:
    known = {f for f in Source.__dataclass_fields__ if f not in ('excludes', 'include', 'licences')}
    extra = set(entry) - known - {'exclude', 'include', 'licences'}
    missing = {'name', 'kind', 'version', 'licence', 'stated_in', 'digest'} - set(entry)
    if extra or missing:
        raise DataError(f'{where}: source {entry.get("name", "?")}: missing {sorted(missing)}, unknown {sorted(extra)}.')
    if entry['kind'] not in KINDS:
        raise DataError(f'{where}: source {entry["name"]}: kind {entry["kind"]!r} is none of {", ".join(KINDS)}.')
    excludes = tuple(Exclude(pattern, item['reason']) for item in entry.get('exclude', ()) for pattern in item['patterns'])
    values = {key: value for key, value in entry.items() if key in known}
    values['version'] = str(values['version'])
    return Source(
        **values, include=tuple(entry.get('include', ())), excludes=excludes, licences=tuple(entry.get('licences', {}).items())
    )


def load_sources(path: Path) -> list[Source]:
    """The sources of a YAML list. Raises DataError for a list that cannot be read, naming the entry."""
    try:
        entries = yaml.safe_load(path.read_text(encoding='utf-8'))
    except (OSError, yaml.YAMLError) as error:
        raise DataError(f'{path}: no list of sources can be read from it: {error}') from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f'{path}: expected a list of sources, each a mapping.')
    sources = [_source(entry, str(path)) for entry in entries]
    names = [source.name for source in sources]
    if len(set(names)) != len(names):
        raise DataError(f'{path}: names of sources occur twice: {sorted({n for n in names if names.count(n) > 1})}.')
    return sources
