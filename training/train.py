"""Trains extractor and matcher, one after the other:

    python -m training.train --photographs PACK --out RUN --minutes 20                            # one GPU, or the CPU
    torchrun --nproc_per_node 4 -m training.train --photographs PACK --out RUN --minutes 20       # four

Run again with the same arguments, it goes on where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from lightglue_trt_ros.networks.architecture import layers_of

from .extractor import ExtractorSettings, train_extractor
from .matcher import MatcherSettings, MatcherSources, train_matcher
from .photographs import NoPhotographsError, drawings, load_photographs
from .processes import Processes, processes
from .run import CheckpointMismatchError, read_tensors, weights_file, write_whole
from .scenes.corners import corner_scores
from .schedule import Schedule
from .teacher import Teacher

EXTRACTOR_SHARE = 1 / 3  # of the time
TOY_EXTRACTOR = ExtractorSettings(64, 96, 4, 40, widths=(16, 16, 32, 32, 64))
LIGHT_EXTRACTOR = ExtractorSettings(widths=(16, 32, 32, 64, 128))  # an eighth of the arithmetic, most of it saved at full size
LIGHT_MATCHER = MatcherSettings(layers=4)  # the large one's first, with --initial
TOY_MATCHER = MatcherSettings(64, 96, 8, (40, 24), learning_rate=2e-3, layers=2, state=64)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog='training.train', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--photographs', type=Path, required=True, help='folder of photographs.NN.tar, or of images')
    p.add_argument('--drawings', type=int, default=200, help='drawn images beside them (default 200)')
    p.add_argument('--teacher', choices=('aliked', 'corners'), help='of the detector: ALIKED at corners (default), or '
                   'corners alone (default with --toy)')
    p.add_argument('--out', type=Path, required=True, help='checkpoints, logs and results')
    p.add_argument('--networks', choices=('both', 'extractor', 'matcher'), help='what is trained (default both, or '
                   'with --model the matcher alone)')
    p.add_argument('--minutes', type=float, default=0, help='time in all; a third of it for the extractor where both are trained')
    p.add_argument('--steps', type=int, default=0, help='steps of each network, instead of a time')
    p.add_argument('--piece', type=float, default=0, help='end after so many minutes; the next run goes on')
    p.add_argument('--initial', type=Path, help="the matcher's first weights, of as many layers or more: safetensors or "
                   "matcher.weights.pt (default: those of --like, or none)")
    p.add_argument('--model', type=Path, help="a model's folder, as training.export writes it, which is trained further. With "
                   '--networks both or extractor the extractor imitates what it was, or that of --like')
    p.add_argument('--standing', type=_share, default=0.0, help='share of the pairs with something that stands still in the image, '
                   'such as dirt, dots, blocks of JPEG or a part of the robot (default 0)')
    p.add_argument('--still', type=_share, default=0.0, help='share of the pairs that a standing camera sees (default 0)')
    p.add_argument('--turned', type=_share, default=0.3, help='share of the pairs whose second camera is turned about its axis by '
                   'any angle (default 0.3)')
    p.add_argument('--keypoints', type=_counts, default=(640,), help='of a view of 512x384, a number for each step in turn: '
                   '640,320,128 (default 640)')
    p.add_argument('--layers', type=_layers, help='of the matcher, instead of those of the model that is trained')
    p.add_argument('--distil', type=Path, help="a finished RUN or a model's folder, whose matcher of more layers is imitated")
    p.add_argument('--views', type=Path, help='folder of views.NN.tar with depth (training.rendered): 30 %% of the pairs')
    p.add_argument('--light', action='store_true', help='a pair of a third of the arithmetic')
    p.add_argument('--widths', type=_widths, help="channels of the extractor's four blocks and of its heads, as 16,32,32,64,128")
    p.add_argument('--stem', action='store_true', help="the extractor's first convolution halves the image, at a quarter of the "
                   'arithmetic of its first two')
    p.add_argument('--like', type=Path, help="a finished RUN or a model's folder, for --light: its extractor is imitated, and its "
                   "matcher's first layers are the first weights")
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--toy', action='store_true', help='small images and batches, for a look on a CPU')
    return p


def _widths(words: str) -> tuple[int, ...]:
    widths = tuple(int(word) for word in words.split(','))
    if len(widths) != 5 or any(width < 8 or width % 8 for width in widths):
        raise argparse.ArgumentTypeError(f'{words}: give five multiples of 8, as 16,32,32,64,128')
    return widths


def _counts(words: str) -> tuple[int, ...]:
    counts = tuple(int(word) if word.isdecimal() else 0 for word in words.split(','))
    if not all(counts):
        raise argparse.ArgumentTypeError(f'{words}: give numbers of keypoints, as 640,320,128')
    return counts


def _share(word: str) -> float:
    try:
        share = float(word)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f'{word}: give a share from 0 to 1')
    return share


def _layers(word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= 9:
        raise argparse.ArgumentTypeError(f'{word}: give 1 to 9 layers')
    return int(word)


def main(arguments: list[str] | None = None) -> int:
    p = parser()
    options = p.parse_args(arguments)
    if bool(options.minutes) == bool(options.steps):
        p.error('give --minutes or --steps')
    options.networks = options.networks or ('matcher' if options.model else 'both')
    if options.model and (options.initial or options.widths or (options.like and options.networks == 'matcher')):
        p.error('--model brings both networks: leave out --like, --initial and --widths')
    try:
        with processes() as group:
            return _train(options, group)
    except (NoPhotographsError, CheckpointMismatchError) as error:
        print(f'training: {error}', file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        print(f'training: {error.filename or error} is not there: check --like, --initial and --distil, and that the extractor is '
              'trained', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('training: interrupted; run the same command again to go on from the last checkpoint', file=sys.stderr)
        return 130


def _train(options: argparse.Namespace, group: Processes) -> int:
    photographs, refused = load_photographs(options.photographs)
    for line in refused:
        group.say(f'refused {line}')
    photographs = np.concatenate([photographs, drawings(options.drawings, options.seed)])
    group.say(f'{len(photographs)} images, {options.drawings} of them drawn; {group.count} processes on {group.device.type}')
    extractor = TOY_EXTRACTOR if options.toy else LIGHT_EXTRACTOR if options.light else ExtractorSettings()
    mixture = dataclasses.replace(extractor.mixture, standing=options.standing, turned=options.turned)
    extractor = dataclasses.replace(extractor, mixture=mixture, stem=options.stem)
    if options.widths:
        extractor = dataclasses.replace(extractor, widths=options.widths)
    if options.model and options.networks == 'matcher' and group.first:
        options.out.mkdir(parents=True, exist_ok=True)
        write_whole(options.out / 'extractor.weights.pt', read_tensors(options.model / 'extractor.safetensors'))
    group.wait()
    matcher = TOY_MATCHER if options.toy else LIGHT_MATCHER if options.light else MatcherSettings()
    mixture = dataclasses.replace(matcher.mixture, standing=options.standing, turned=options.turned, still=options.still)
    matcher = dataclasses.replace(matcher, mixture=mixture)
    if not options.toy:
        matcher = dataclasses.replace(matcher, keypoints=options.keypoints)
    if options.model and options.networks != 'extractor' and not options.toy:
        matcher = dataclasses.replace(matcher, layers=layers_of(load_file(options.model / 'matcher.safetensors')))
    if options.layers:
        matcher = dataclasses.replace(matcher, layers=options.layers)
    log_every = 10 if options.toy else 100
    both = options.networks == 'both'
    piece = options.piece
    if options.networks != 'matcher' and not (options.out / 'extractor.weights.pt').is_file():
        schedule = Schedule(options.steps, options.minutes * (EXTRACTOR_SHARE if both else 1), piece)
        corners = options.teacher == 'corners' or (options.toy and not options.teacher)
        teacher = corner_scores if corners else Teacher(group.device)
        initial = read_tensors(weights_file(options.model, 'extractor')) if options.model else None
        wide = read_tensors(weights_file(options.like, 'extractor')) if options.like else initial
        if not train_extractor(photographs, teacher, options.out, group, schedule, options.seed, extractor, wide, log_every,
                               initial):
            group.say('This piece is over: run the same command again to go on.')
            return 0
        piece = max(0.1, piece - schedule.elapsed()) if piece else 0
    if options.networks != 'extractor':
        like = options.model or options.like
        sources = MatcherSources(options.initial or (like and weights_file(like, 'matcher')),
                                 options.distil and weights_file(options.distil, 'matcher'), options.views)
        schedule = Schedule(options.steps, options.minutes * (1 - EXTRACTOR_SHARE if both else 1), piece)
        if not train_matcher(photographs, options.out, group, schedule, options.seed, matcher, sources, log_every):
            group.say('This piece is over: run the same command again to go on.')
            return 0
    group.say(f'Done: python -m training.export {options.out} --out FOLDER makes weights of it')
    return 0


if __name__ == '__main__':
    sys.exit(main())
