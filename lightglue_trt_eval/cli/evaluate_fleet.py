"""evaluate_fleet: did anything get worse, on all the recordings of a team."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.masks import load_mask
from lightglue_trt_ros.utils.arguments import number, positive
from lightglue_trt_ros.utils.commands import INTERRUPTED, command, log
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import first_of
from lightglue_trt_ros.utils.files import own_output_folder, written_together
from lightglue_trt_ros.utils.processes import stop_on_signal

from ..fleet.cluster import agreed, connected
from ..fleet.discovery import find_recordings
from ..fleet.fleet_json import FILE, PAIRS, FleetReport, build_of, read_baseline, write_fleet_document
from ..fleet.fleet_page import FAILURES, TOGETHER, together, verdict, worst_first, write_fleet_page
from ..fleet.plan import installation, make_plan
from ..fleet.result_store import GOES_ON, WAITING, ResultStore, read_pairs, write_pairs
from ..fleet.run import NOT_YET, FleetRun
from ..options import EvaluationOptions, add_evaluation_options
from ..report.summary import written

PAGE = 'fleet.html'
SHOWN = 20  # rows on the terminal
MISSING = 5  # names there
FIGURES = {'pose_auc@10': 'AUC@10, %', 'inlier_ratio': 'inliers, %', 'matches': 'matches', 'depth_error_p50': 'error of z, %'}


@command('evaluate_fleet', interrupted='interrupted; no report was written')
def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when recordings were evaluated and none got worse than allowed, 1 with a message otherwise, 130 interrupted."""
    args, options = _parse(argv)
    with own_output_folder(args.out), stop_on_signal() as stop:
        report = _run(args, options, stop.is_set)
    _print(args.out, report)
    if report.interrupted == NOT_YET:
        return INTERRUPTED
    failures = [*report.failures, *([report.interrupted] if report.interrupted else [])]
    if not report.evaluated:
        failures.append(f'no recording could be evaluated; the first: {report.rows[0].reason}')
    for line in failures[:FAILURES]:
        print(f'evaluate_fleet: {line}', file=sys.stderr)
    if len(failures) > FAILURES:
        print(f'evaluate_fleet: and {len(failures) - FAILURES} more: see {FILE}', file=sys.stderr)
    return 1 if failures else 0


def _parse(argv: list[str] | None) -> tuple[argparse.Namespace, EvaluationOptions]:
    parser = argparse.ArgumentParser(
        prog='evaluate_fleet', description='Evaluate many recordings, each as evaluate_bag does, side by side on a Dask cluster; '
        'one page for all, and the difference to an earlier run. A second run with the same --out does only what is new.')
    parser.add_argument('recordings', nargs='+', metavar='RECORDINGS', help='recordings, folders of them, globs, or lists '
                        '(.txt, one a line); local paths, or what fsspec opens (s3://bucket/runs)')
    parser.add_argument('--out', type=Path, default=Path('build/fleet'), help='folder of the results, default: %(default)s')
    parser.add_argument('--scheduler', metavar='ADDRESS', help="a Dask scheduler's (tcp://host:8786), instead of a cluster here")
    parser.add_argument('--workers', type=number(int, 1), help='of the cluster on this machine, default: its cores by --threads')
    parser.add_argument('--threads', type=number(int, 1), default=1, help='that one evaluation uses, default: %(default)s')
    parser.add_argument('--against', type=Path, metavar='OLD/fleet.json', help='an earlier fleet, or the report.json of one '
                        'recording: what got better or worse since')
    parser.add_argument('--fail-under-worse', type=positive, metavar='POINTS', help='with --against, exit with 1 where pose AUC@10 '
                        'or precision at 1 px (without ground truth the share of inliers) is surely lower by more; the '
                        'output says which losses this detects')
    each = parser.add_argument_group('of each evaluation, as evaluate_bag has them')
    add_evaluation_options(each, fleet=True)
    args = parser.parse_args(argv)
    if args.fail_under_worse is not None and args.against is None:
        parser.error('--fail-under-worse holds against an earlier run: name it with --against')
    options = EvaluationOptions.of(args, parser)
    if args.scheduler and args.workers:
        parser.error('--workers is for the cluster on this machine: that of --scheduler has its own')
    return args, options


def _run(args: argparse.Namespace, options: EvaluationOptions, stopped: Callable[[], bool]) -> FleetReport:
    """Evaluate, compare, and write all of it. Raises LightglueTrtError."""
    started = time.monotonic()
    baseline = read_baseline(args.against) if args.against else None
    size: dict[str, Any] = \
        {} if options.height is None else {'image_height': options.height, 'image_width': options.width}
    options.variants(MatcherConfig(**options.matcher, **size))  # refuses what no worker could do
    if args.mask is not None:
        load_mask(args.mask)  # so does one of no use
    here = installation(args.weights, backend='onnxruntime')  # without a GPU: what counts is the workers'
    plan = make_plan({**{name: value for name, value in vars(options).items() if hasattr(args, name)}, **options.matcher}, here)
    listed = find_recordings(args.recordings)
    store = ResultStore(args.out.absolute())
    workers = args.workers or max(1, min(len(listed), len(os.sched_getaffinity(0)) // args.threads))
    with connected(args.scheduler, workers, plan.installed) as client:
        plan = agreed(client, plan)
        if (earlier := build_of(args.out / FILE)) not in ('', plan.installed.build):
            log.info(f'{args.out} has results of {earlier}, this version is {plan.installed.build}: all are evaluated again')
        run = FleetRun(client, plan, store, args.threads, stopped=stopped)
        rows = run.rows(listed)
    incomplete = run.lost or (NOT_YET if any(row.status == WAITING for row in rows) else '')
    report = FleetReport(rows, plan, incomplete, limit=args.fail_under_worse)
    with written_together(args.out, GOES_ON) as scratch:
        write_pairs(scratch / PAIRS, [(row.name, row.sha256, store.place(row.key) / 'report.json') for row in report.evaluated])
        if baseline is not None:
            pairs = read_pairs(scratch / PAIRS, {row.sha256: row.first['name'] for row in report.evaluated})
            report.comparison = baseline.compared(rows, plan, pairs)
            report.failures = [] if report.limit is None else report.comparison.failures(report.limit)
        report.seconds = time.monotonic() - started
        write_fleet_document(scratch / FILE, report)
        for line in write_fleet_page(scratch / PAGE, report):
            log.info(line)
    return report


def _print(out: Path, report: FleetReport) -> None:
    rows = worst_first(report.rows, report.comparison)
    figures = [name for name in FIGURES if 'depth' not in name or any(row.figure(name) is not None for row in rows)]
    lines = [[row.name, *(written(name, row.figure(name)) for name in figures),
              row.reason or '; '.join(row.facts.get('recording', {}).get('left_out', []))] for row in rows[:SHOWN]]
    more = f' of {len(rows)}' if len(rows) > SHOWN else ''
    heads = ['recording', *(FIGURES[name] for name in figures), '']
    columns = len(heads) if any(line[-1] for line in lines) else len(heads) - 1  # the last one says why
    print_table(f'{len(lines)}{more} recordings, the worst first', heads[:columns], [line[:columns] for line in lines], left=1)
    if together_rows := together(report.comparison):
        print_table('All recordings', TOGETHER, together_rows, left=1)
    for line in verdict(report):
        print(line)
    for line in report.comparison.causes if report.comparison else ():
        print(f'changed: {line}')
    if report.comparison is not None and (missing := report.comparison.missing):
        print(f'evaluated before, not asked for now: {len(missing)}, {first_of(missing, MISSING)}')
    log.info(f'see {out / PAGE}; {report.seconds:.1f} s')


if __name__ == '__main__':
    sys.exit(main())
