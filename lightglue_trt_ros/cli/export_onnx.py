"""export_onnx: write both networks as ONNX files, for inspection or for another runtime."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ..core.config import EngineSpec, MatcherConfig
from ..networks.lightglue import lightglue
from ..networks.models import load_model
from ..networks.superpoint import superpoint
from ..utils.arguments import add_settings
from ..utils.commands import command
from ..utils.files import written_together


@command('export_onnx')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when both files are written, 1 with a message otherwise."""
    args = _parse(argv)
    spec = EngineSpec(args.height, args.width, args.max_keypoints, args.precision)
    model = load_model(args.weights)
    print(f'export_onnx: weights: {model.identity}')
    folder = args.out / f'{model.identity.label}-{spec.name}'
    written = []
    with written_together(folder, 'choose another place') as scratch:
        for file, write, weights in (('extractor.onnx', superpoint, model.extractor), ('matcher.onnx', lightglue, model.matcher)):
            started = time.perf_counter()
            graph = write(spec, weights)
            data = graph.SerializeToString()
            (scratch / file).write_bytes(data)
            written.append(f'export_onnx: {folder / file}, {len(data) / 2**20:.1f} MiB, {len(graph.graph.node)} nodes, '
                           f'{time.perf_counter() - started:.1f} s')
    print(*written, sep='\n')
    return 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='export_onnx', description=__doc__)
    add_settings(parser, MatcherConfig, 'image_height', 'image_width', 'max_keypoints', 'weights')
    parser.add_argument('--precision', choices=('fp32', 'fp16'), default='fp32', help='default: %(default)s')
    parser.add_argument('--out', type=Path, default=Path('engines'), help='the files get a folder in it; default: %(default)s')
    return parser.parse_args(argv)


if __name__ == '__main__':
    sys.exit(main())
