"""Measurements that need a checkout and recorded images: homographies, rotation, early exits, peers, scores, odometry, speed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import (
    early_exits,
    exit_zero,
    homographies,
    in_plane_rotation,
    layers,
    peers,
    pose_covariances,
    scores,
    static_cost,
    static_structure,
    stereo_odometry,
    sweep,
    unchanged_fleets,
)
from lightglue_trt_eval.report.json_report import as_text
from lightglue_trt_eval.times.provenance import provenance
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.utils.arguments import add_settings, settings_of
from lightglue_trt_ros.utils.commands import command, log
from lightglue_trt_ros.utils.files import write_output

# Each module has measure(args, config), which prints a table and returns its part of the JSON report; some have add_options.
MEASUREMENTS = {'homographies': homographies, 'turns': in_plane_rotation, 'depth': early_exits, 'zero': exit_zero,
                'layers': layers, 'peers': peers, 'scores': scores, 'odometry': stereo_odometry, 'covariances': pose_covariances,
                'standing': static_cost, 'structure': static_structure, 'sweep': sweep, 'unchanged': unchanged_fleets}


@command('benchmarks')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when all was measured, 1 with a message otherwise."""
    args = _parse(argv)
    origin = provenance('python -m benchmarks', sys.argv[1:] if argv is None else argv)
    log.info(origin['machine'])
    figures = MEASUREMENTS[args.name].measure(args, MatcherConfig(**settings_of(args, MatcherConfig)))
    if args.json:
        write_output(args.json, as_text({**origin, args.name: figures}))
    return 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m benchmarks', description=__doc__)
    names = parser.add_subparsers(dest='name', required=True, metavar='NAME')
    for name, module in MEASUREMENTS.items():
        summary = (module.__doc__ or '').strip().splitlines()[0]
        part = names.add_parser(name, help=summary, description=summary)
        part.add_argument('--data', type=Path, default=Path('../shared/data'), help=f'{module.DATA}; default: %(default)s')
        part.add_argument('--json', type=Path, metavar='FILE', help='also write the figures to this file')
        add_settings(part, MatcherConfig, 'backend', 'engine_dir', 'precision', 'weights', 'image_height', 'image_width',
                     'max_keypoints', 'refinement')
        if hasattr(module, 'add_options'):
            module.add_options(part)
    return parser.parse_args(argv)


if __name__ == '__main__':
    sys.exit(main())
