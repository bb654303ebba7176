"""Makes a model between two, which learned from one start: what the second gained, without all that it forgot.

    python -m training.between FORMER TRAINED --share 0.7 --out FOLDER --pair NAME

Both folders have extractor.safetensors and matcher.safetensors. The extractor is TRAINED's. The matcher's weights are the weighted
mean of both (Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022). FOLDER is then a value of the setting `weights`;
`python -m training.scores FOLDER` makes its scores probabilities.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from lightglue_trt_ros.utils.errors import WeightsError
from training.commands import command
from training.weight_files import first_layers, with_descriptor_assignment, write_network

Tensors = dict[str, NDArray[Any]]
EXTRACTOR, MATCHER = 'extractor.safetensors', 'matcher.safetensors'


def between(former: Tensors, trained: Tensors, share: float) -> Tensors:
    """`former` (share 0) to `trained` (share 1): tensors of equal names and shapes. Raises WeightsError where they differ.

    An assignment before the first layer that `former` lacks is the trained one.
    """
    former = with_descriptor_assignment(trained, former)
    if different := sorted(name for name in former.keys() | trained.keys()
                           if name not in former or name not in trained or former[name].shape != trained[name].shape):
        raise WeightsError(f'{different[0]} is not alike in both matchers: give models of the same layers and widths')
    return {name: (1 - share) * former[name].astype(np.float64) + share * trained[name].astype(np.float64) for name in former}


@command('between', WeightsError, FileNotFoundError)
def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog='training.between', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('former', type=Path, help='folder of the model that the other one began with')
    p.add_argument('trained', type=Path, help='folder of the model that was trained further')
    p.add_argument('--share', type=float, required=True, help='of the trained matcher, from 0 to 1')
    p.add_argument('--layers', type=int, help='of the matcher that are kept, the first ones (default: all)')
    p.add_argument('--out', type=Path, required=True, help='folder for the model')
    p.add_argument('--pair', required=True, help='its name: extractor and matcher of one name belong together')
    p.add_argument('--licence', default='Apache-2.0')
    options = p.parse_args(arguments)
    if not 0 <= options.share <= 1:
        p.error(f'--share {options.share:g}: give a share from 0 to 1')
    matcher = between(load_file(options.former / MATCHER), load_file(options.trained / MATCHER), options.share)
    matcher = first_layers(matcher, options.layers) if options.layers else matcher
    options.out.mkdir(parents=True, exist_ok=True)
    for network, tensors in (('extractor', load_file(options.trained / EXTRACTOR)), ('matcher', matcher)):
        path = options.out / f'{network}.safetensors'
        digest = write_network(path, tensors, pair=options.pair, network=network, licence=options.licence)
        print(f'{path}  sha256 {digest}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
