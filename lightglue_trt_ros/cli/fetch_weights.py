"""fetch_weights: show which models (extractor and matcher) there are, and fetch into the cache those that are not shipped."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..core.config import SHIPPED_MODELS
from ..networks.architecture import NETWORKS
from ..networks.models import NAMES, file_name, load_model, shipped_folder
from ..networks.weight_store import CACHE_VARIABLE, Source, cache_dir, fetch, is_available, places, sources_of
from ..networks.weights import read_network
from ..utils.commands import command
from ..utils.console import progress
from ..utils.errors import LightglueTrtError, WeightsError


@command('fetch_weights')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when every model that was asked for is there, whole and sound."""
    parser = argparse.ArgumentParser(prog='fetch_weights', description=__doc__)
    parser.add_argument('models', nargs='*', metavar='model', help=f'to get: {", ".join(NAMES)}; without one, show what there is')
    parser.add_argument('--force', action='store_true', help='fetch again what is in the cache')
    parser.add_argument('--cache-dir', type=Path, help=f'cache directory (default: ${CACHE_VARIABLE}, else {cache_dir()})')
    args = parser.parse_args(argv)
    if args.force and not args.models:
        parser.error('--force fetches a model again: name the model')
    cache = args.cache_dir.expanduser().absolute() if args.cache_dir else None
    if unknown := [name for name in args.models if name not in NAMES]:
        raise WeightsError(f'there is no model {unknown[0]!r}: use {", ".join(NAMES)}')
    if not args.models:
        for name in NAMES:
            _describe(name, cache)
        return 0
    failed = [name for name in args.models if not _get(name, args.force, cache)]
    if not failed and cache and cache != cache_dir() and not set(args.models) <= set(SHIPPED_MODELS):
        print(f'export {CACHE_VARIABLE}={cache}    # for the other commands and the node to find them')
    return 1 if failed else 0


def _get(model: str, force: bool, cache: Path | None) -> bool:
    """Both networks of a model, each as far as it can be had."""
    if model in SHIPPED_MODELS:
        load_model(model)
        print(f'{model}: {shipped_folder(model)} (shipped)')
        return True
    got = [_get_network(source, force, cache) for source in sources_of(model)]
    if all(got):
        load_model(model, cache)
        print(f'{model}: complete; to use it: weights: {model}')
    return all(got)


def _get_network(source: Source, force: bool, cache: Path | None) -> bool:
    try:
        if force or not is_available(source.name, cache):
            print(f'{source.name}: fetching {source.url} ({source.size / 1e6:.1f} MB, {source.licence})')
            if source.caveat:
                print('\n'.join(['', '*' * 120, *source.caveat.splitlines(), '*' * 120, '']))
        sys.stdout.flush()
        with progress(f'{source.name}, kB', source.size // 1000) as bar:
            path = fetch(source.name, force, lambda done, total: bar(done // 1000), cache)
    except LightglueTrtError as error:
        print(f'fetch_weights: {source.name}: {error}', file=sys.stderr)
        return False
    print(f'{source.name}: {path} ({source.licence})')
    return True


def _describe(model: str, cache: Path | None) -> None:
    if model in SHIPPED_MODELS:
        print(f'{model}: shipped, nothing to fetch')
        for network in NETWORKS:
            path = shipped_folder(model) / file_name(network)
            weights = read_network(path, network, 'install the package again')
            print(f'  {network}: {path.name}, {path.stat().st_size / 1e6:.1f} MB, sha256 {weights.sha256}\n'
                  f'    licence  {weights.metadata.get("licence", "")}\n    at       {path}')
        return
    sources = sources_of(model)
    in_cache = [is_available(source.name, cache) for source in sources]
    state = 'in the cache' if all(in_cache) else f'not fetched; fetch_weights {model} gets it'
    print(f'{model}: {state}')
    for network, source, cached in zip(NETWORKS, sources, in_cache, strict=True):
        print(f'  {network}: {source.file}, {source.size / 1e6:.1f} MB, sha256 {source.sha256}\n    licence  {source.licence}\n'
              f'    from     {source.url}\n    at       {places(source, cache)[0]}{"" if cached else ", not there yet"}')


if __name__ == '__main__':
    sys.exit(main())
