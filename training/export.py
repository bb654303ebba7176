"""Makes the package's weights of a finished training:

    python -m training.export RUN --out FOLDER --pair NAME

FOLDER is then a value of the setting `weights`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from lightglue_trt_ros.utils.errors import WeightsError
from training.commands import command
from training.weight_files import write_network


def export(run: Path, out: Path, pair: str, licence: str) -> dict[str, str]:
    """Write extractor.safetensors and matcher.safetensors in FP16 into `out`; their sha256 by file name.

    Raises WeightsError where a tensor does not fit the package's networks, FileNotFoundError where the training is not finished.
    """
    out.mkdir(parents=True, exist_ok=True)
    digests = {}
    for network in ('extractor', 'matcher'):
        tensors = torch.load(run / f'{network}.weights.pt', map_location='cpu', weights_only=True)
        path = out / f'{network}.safetensors'
        digests[path.name] = write_network(path, {name: tensor.numpy() for name, tensor in tensors.items()}, pair=pair,
                                           network=network, licence=licence)
    return digests


@command('export', WeightsError)
def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog='training.export', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('run', type=Path, help='what training.train wrote')
    p.add_argument('--out', type=Path, required=True, help='folder for the pair')
    p.add_argument('--pair', required=True, help='its name: extractor and matcher of one name belong together')
    p.add_argument('--licence', default='Apache-2.0')
    options = p.parse_args(arguments)
    try:
        for name, digest in export(options.run, options.out, options.pair, options.licence).items():
            print(f'{options.out / name}  sha256 {digest}')
    except FileNotFoundError as error:
        print(f'export: {error.filename} is not there: run training.train until it says that it is done', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
