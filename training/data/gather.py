"""python -m training.data.gather --out FOLDER: fetch, filter and pack the training photographs."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from training.commands import command
from training.data import fetching, filters, packing
from training.data.candidates import Candidate, Refusal, examine_once
from training.data.sheets import write_sheets
from training.data.sources import DataError, Source, load_sources

HERE = Path(__file__).parent
SEED = 20_10
COLUMNS = ('id', 'source', 'member', 'crop', 'sha256', 'licence')


@dataclass(frozen=True)
class Kept:
    """One packed image."""

    source: Source
    candidate: Candidate

    @property
    def id(self) -> str:
        """Names the source, the original and the crop."""
        return f'{self.source.name.rpartition("/")[2]}-{self.candidate.sha256[:10]}-{self.candidate.number}'


def choose(source: Source, candidates: list[Candidate], seen: filters.Seen) -> tuple[list[Kept], list[Refusal]]:
    """The crops of one source that pass, at most its limit, without near-duplicates of what earlier sources gave.

    Larger originals go first, so that of one picture in several sizes the largest stays; over the limit, originals' digests choose.
    """
    kept: list[Kept] = []
    refusals: list[Refusal] = []
    passed = []
    for candidate in sorted(candidates, key=lambda c: (-c.pixels, c.sha256, c.number, c.member)):
        reason = source.refusal(candidate.member) or filters.refuse_measure(candidate.measure, source.contrast)
        reason = reason or seen.refuse(candidate.hashes)
        if reason:
            refusals.append(Refusal(candidate.member, reason))
            continue
        seen.keep(candidate.hashes, candidate.member)
        passed.append(candidate)
    for rank, candidate in enumerate(sorted(passed, key=lambda c: (c.sha256, c.number))):
        if source.limit and rank >= source.limit:
            refusals.append(Refusal(candidate.member, f'over the limit of {source.limit} of its source'))
        else:
            kept.append(Kept(source, candidate))
    return kept, refusals


def manifest_of(kept: list[Kept], digest: str) -> str:
    """The manifest: comment lines, a header, a row per packed image in the order of ids."""
    stream = io.StringIO()
    stream.write(f'# {len(kept)} images, gray JPEG {packing.WIDTH}x{packing.HEIGHT}, quality {packing.QUALITY}\n')
    stream.write(f'# sha256 of the names and contents: {digest}\n')
    writer = csv.writer(stream, lineterminator='\n')
    writer.writerow(COLUMNS)
    for item in sorted(kept, key=lambda k: k.id):
        found, source = item.candidate, item.source
        crop = ' '.join(map(str, found.crop))
        writer.writerow([item.id, source.name, found.member, crop, found.sha256, source.licence_of(found.member)])
    return stream.getvalue()


def report(sources: list[Source], kept: list[Kept], refusals: dict[str, list[Refusal]]) -> str:
    """A table of counts per source, and of reasons."""
    counts = Counter(item.source.name for item in kept)
    lines = ['| source | version | licence | packed | refused |', '|---|---|---|---|---|']
    for source in sources:
        version = source.version[:12] if source.kind == 'git' else source.version
        refused = len(refusals.get(source.name, []))
        lines.append(f'| {source.name} | {version} | {source.licence} | {counts[source.name]} | {refused} |')
    lines.append(f'| all | | | {len(kept)} | {sum(map(len, refusals.values()))} |')
    return '\n'.join(lines)


def gather(sources: list[Source], work: Path, local: dict[str, Path], workers: int) -> tuple[list[Kept], dict[str, list[Refusal]]]:
    """Fetch and examine each source in turn, and choose. A source that cannot be had raises DataError."""
    seen = filters.Seen()
    kept: list[Kept] = []
    refusals: dict[str, list[Refusal]] = {}
    for source in sources:
        path = local.get(source.name) or fetching.fetch(source, work / 'sources')
        fetching.check_digest(source, path)
        candidates, refused = examine_once(source, path, workers, work / 'candidates')
        chosen, more = choose(source, candidates, seen)
        kept += chosen
        refusals[source.name] = refused + more
        print(f'{source.name}: {len(chosen)} of {len(candidates)} crops, {len(refused)} files refused before', flush=True)
    return kept, refusals


def _locals(pairs: list[str]) -> dict[str, Path]:
    if wrong := [pair for pair in pairs if '=' not in pair]:
        raise DataError(f'--local {wrong[0]}: expected NAME=PATH.')
    return {name: Path(path) for name, _, path in (pair.partition('=') for pair in pairs)}


@command('error', DataError)
def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog='python -m training.data.gather', description=__doc__)
    parser.add_argument('--out', type=Path, required=True, help='where photographs.NN.tar are written')
    parser.add_argument('--sources', type=Path, default=HERE / 'sources.yaml')
    parser.add_argument('--manifest', type=Path, help='default: manifest.csv in --out')
    parser.add_argument('--work', type=Path, help='where sources and examined images are kept; default: OUT/work')
    parser.add_argument('--local', action='append', default=[], metavar='NAME=PATH', help='a copy of a source that is here')
    parser.add_argument('--only', action='append', default=[], metavar='NAME', help='these sources alone')
    parser.add_argument('--sheets', type=Path, metavar='FOLDER', help='write contact sheets')
    parser.add_argument('--workers', type=int, default=min(os.cpu_count() or 1, 8))
    options = parser.parse_args(arguments)
    sources = [s for s in load_sources(options.sources) if not options.only or s.name in options.only]
    kept, refusals = gather(sources, options.work or options.out / 'work', _locals(options.local), options.workers)
    if not kept:
        raise DataError('no image is usable; refusals.txt says why.') if refusals else DataError('no source was given.')
    items = sorted((f'{item.id}.jpg', item.candidate.jpeg) for item in kept)
    parts = packing.write_parts(items, options.out, SEED)
    lines = [f'{name}: {refusal.member}: {refusal.reason}\n' for name, found in refusals.items() for refusal in found]
    (options.out / 'refusals.txt').write_text(''.join(lines), encoding='utf-8')
    text = manifest_of(kept, packing.digest_of(items))
    manifest = options.manifest or options.out / 'manifest.csv'
    temporary = manifest.with_suffix('.tmp')
    temporary.write_text(text, encoding='utf-8')
    temporary.replace(manifest)
    if options.sheets:
        write_sheets(items, options.sheets)
    print(report(sources, kept, refusals))
    print(f'{len(kept)} images in {len(parts)} parts, {sum(p.stat().st_size for p in parts) / 2**20:.0f} MiB')
    return 0


if __name__ == '__main__':
    sys.exit(main())
