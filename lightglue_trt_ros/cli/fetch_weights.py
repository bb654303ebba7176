"""fetch_weights: get the networks' weights into the user's cache, checked and converted."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import LightglueTrtError
from ..weights.download import Progress
from ..weights.store import CACHE_VARIABLE, REGISTRY, Source, cache_dir, fetch, is_available, load_weights, places


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when everything asked for is there; the official LightGlue weights may be missing unless they are named."""
    parser = argparse.ArgumentParser(prog='fetch_weights', description='Get the weights of SuperPoint and LightGlue.')
    parser.add_argument('names', nargs='*', metavar='name', help=f'{", ".join(REGISTRY)}; all of them by default')
    parser.add_argument('--force', action='store_true', help='fetch again what is in the cache')
    parser.add_argument('--list', action='store_true', help='show what there is, and what is on this machine, and fetch nothing')
    parser.add_argument('--cache-dir', type=Path, help=f'cache directory (default: ${CACHE_VARIABLE}, else {cache_dir()})')
    args = parser.parse_args(argv)
    cache = args.cache_dir.expanduser().absolute() if args.cache_dir else None
    unknown = [name for name in args.names if name not in REGISTRY]
    if unknown:
        return _fail(f'there are no weights {unknown[0]!r}: use {", ".join(REGISTRY)}')
    if args.list:
        for name in args.names or REGISTRY:
            _describe(REGISTRY[name], cache)
        return 0
    try:
        failed = [name for name in args.names or REGISTRY if not _get(REGISTRY[name], args.force, cache, optional=not args.names)]
    except KeyboardInterrupt:
        return _fail('interrupted; what has come is kept, and the next run goes on from there')
    if not failed and cache and cache != cache_dir():
        print(f'export {CACHE_VARIABLE}={cache}    # for the other commands and the node to find them')
    return 1 if failed else 0


def _get(source: Source, force: bool, cache: Path | None, optional: bool) -> bool:
    try:
        if not source.url:
            print(f'{source.name}: {load_weights(source.name).path} (shipped, {source.licence})')
            return True
        if force or not is_available(source.name, cache):
            print(f'{source.name}: fetching {source.url} ({source.size / 1e6:.1f} MB, {source.licence})')
            if source.caveat:
                print('\n'.join(['', '*' * 120, *source.caveat.splitlines(), '*' * 120, '']))
        sys.stdout.flush()
        with _progress(source.name) as progress:
            path = fetch(source.name, force, progress, lambda line: print(line, flush=True), cache)
    except LightglueTrtError as error:
        if optional and source.name == 'lightglue_official':
            reason, _, advice = str(error).partition('\n')
            print(f'WARNING: official LightGlue weights could not be fetched ({reason}); the shipped homography weights are used',
                  *advice.splitlines(), sep='\n', file=sys.stderr)
            return True
        _fail(f'{source.name}: {error}')
        return False
    print(f'{source.name}: {path} ({source.licence})')
    return True


def _describe(source: Source, cache: Path | None) -> None:
    state = 'shipped' if not source.url else 'in the cache' if is_available(source.name, cache) else 'not fetched'
    print(f'{source.name}: {state}\n  source   {source.file}, {source.size / 1e6:.1f} MB, sha256 {source.sha256}\n'
          f'  licence  {source.licence}\n  from     {source.url or "this package"}\n  at       {places(source, cache)[0]}')


@contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """A bar on a terminal that has rich, else a line for each tenth."""
    if sys.stdout.isatty() and importlib.util.find_spec('rich'):
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar
        columns = TextColumn('{task.description}'), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
        with Bar(*columns) as bar:
            task = bar.add_task(name, total=None, visible=False)
            yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)
        return
    tenth = -1

    def line(done: int, total: int) -> None:
        nonlocal tenth
        if done * 10 // total > tenth:
            tenth = done * 10 // total
            print(f'{name}: {done * 100 // total:3d} % of {total / 1e6:.1f} MB', flush=True)

    yield line


def _fail(message: str) -> int:
    print(f'fetch_weights: {message}', file=sys.stderr)
    return 1


if __name__ == '__main__':
    sys.exit(main())
