"""Write the tables and numbers of README.md and docs/, and the charts in docs/images/, from the files in docs/figures/.

A page has `<!-- figures: NAME -->` and `<!-- end -->` around a table, or `<!-- figure: NAME/ROW/COLUMN -->` and `<!-- end -->`
around one cell. `python -m tools.figures keep FILE NAME COMMAND` puts the report.json of an evaluation into docs/figures/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lightglue_trt_eval.report.json_report import as_text
from lightglue_trt_eval.times.board_prediction import BOARDS, STAGES
from lightglue_trt_eval.times.provenance import version
from lightglue_trt_ros.core.timing import PERCENTILES

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER, IMAGES = REPOSITORY / 'docs' / 'figures', REPOSITORY / 'docs' / 'images'
ORIGIN = ('machine', 'version', 'command', 'date')  # what each file says about its numbers
BLOCK = re.compile(r'<!-- figures: ([\w/-]+) -->\n(?:(?!<!-- figures).*\n)*?<!-- end -->')
CELL = re.compile(r'<!-- figure: (\w[^>]*?) -->.*?<!-- end -->')
REFERENCE = re.compile(r'\{([^{}]+)\}')
KEPT = ('name', 'ours', 'summary')  # of a matcher of a report,
CHARTED = ('intervals', 'deviation_histogram')  # and these of the recordings that charts have
GPU_STAGES = ('extract', 'match', 'place', 'together', 'at exit 0')
CONTESTED = 'pose_auc@10'
UNREFINED = ', refinement none'  # ends the names of matchers without refinement
DIGITS = 6  # significant, of what is kept of a report


class Table(NamedTuple):
    """Rows of text; the first `keys` cells of a row name it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int = 1
    origin: str = ''  # a line about machine, version, date and command; empty where the cells come from other tables

    def cell(self, row: str, column: str) -> str:
        """The cell of the row whose keys are `row`, joined by commas, under `column`."""
        found = [cells for cells in self.rows if ', '.join(cells[:self.keys]).replace('*', '') == row]
        if len(found) != 1 or column not in self.columns:
            raise KeyError(f'{row}/{column}')
        return found[0][list(self.columns).index(column)]

    def markdown(self) -> str:
        lines = [f'| {" | ".join(cells)} |' for cells in [self.columns, *self.rows]]
        table = '\n'.join([lines[0], '|---' * len(self.columns) + '|', *lines[1:]])
        return f'{table}\n\n{self.origin}' if self.origin else table


def load(name: str) -> Table:
    """The table of a file in docs/figures/: rows, reports of recordings, or the JSON of `benchmark`."""
    content = document(name)
    kind = next((kind for kind in KINDS if kind in content), None)
    if kind is None:
        raise SystemExit(f'docs/figures/{name}.json has none of the keys {", ".join(KINDS)}')
    return KINDS[kind](content)


def document(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / f'{name}.json').read_text(encoding='utf-8')))


def page(text: str) -> str:
    """The `text` of a page with its tables and cells as docs/figures/ has them."""
    text = BLOCK.sub(lambda match: f'<!-- figures: {match[1]} -->\n\n{load(match[1]).markdown()}\n\n<!-- end -->', text)
    return CELL.sub(lambda match: f'<!-- figure: {match[1]} -->{value(match[1])}<!-- end -->', text)


def value(reference: str) -> str:
    """The cell that NAME/ROW/COLUMN names."""
    name, row, column = (part.strip() for part in reference.rsplit('/', 2))
    try:
        return load(name).cell(row, column).replace('*', '')
    except (KeyError, FileNotFoundError) as error:
        raise SystemExit(f'docs/figures has no {reference}: {error}') from error


def pages() -> list[Path]:
    return [REPOSITORY / 'README.md', *sorted((REPOSITORY / 'docs').glob('*.md'))]


# what a file may have


def _of_rows(content: Mapping[str, Any]) -> Table:
    rows = [[REFERENCE.sub(lambda match: value(match[1]), str(cell)) for cell in row] for row in content['rows']]
    return Table(content['columns'], rows, content.get('keys', 1), _origin(content) if content.get('machine') else '')


def _of_reports(content: Mapping[str, Any]) -> Table:
    """Rows are reports, each of the `matchers` that are named or their first one; columns are metrics at strides.

    A column may be `of` another report, whose name ends so, or of another `matcher`.
    """
    matchers, rows = content.get('matchers', {}), []
    for label, name in content['reports'].items():
        for matcher, shown in (matchers or {'': ''}).items():
            cells = [_cell(document(name + column.get('of', '')), column.get('matcher', matcher), column)
                     for column in content['columns']]
            rows.append([label, shown, *cells] if matchers else [label, *cells])
    heads = ['recording', *(['matcher'] if matchers else []), *(column['label'] for column in content['columns'])]
    first = next(iter(content['reports'].values())) + content['columns'][0].get('of', '')
    origin = f'*As in {content["as"]}.*' if 'as' in content else _origin({'note': content.get('note', ''), **document(first)})
    return Table(heads, rows, 2 if matchers else 1, origin)


def _of_means(content: Mapping[str, Any]) -> Table:
    """The mean of one metric over reports and strides, for each matcher."""
    reports = [document(name) for name in content['means'].values()]
    values = {shown: [matcher['summary'][str(stride)][content['metric']] for report in reports for stride in content['strides']
                      for matcher in report['matchers'] if matcher['name'] == name] for name, shown in content['matchers'].items()}
    rows = [[shown, f'{np.mean(each):.{content["digits"]}f}'] for shown, each in values.items()]
    return Table(['matcher', 'mean'], rows, 1, _origin(reports[0]))


def _of_runs(content: Mapping[str, Any]) -> Table:
    """The rows of several files of one command, each row once; `ours` gets the name of its file's model."""
    tables = {model: load(name) for model, name in content['runs'].items()}
    rows = {model if row[0] == 'ours' else row[0]: row for model, table in tables.items() for row in table.rows}
    first = next(iter(tables.values()))
    return Table(first.columns, [[name, *row[1:]] for name, row in rows.items()], 1, first.origin)


def _of_homographies(content: Mapping[str, Any]) -> Table:
    shares: dict[str, list[float]] = {}
    for pair in content['homographies']['pairs']:
        shares.setdefault(pair['matcher'], []).append(pair['within_3px'])
    rows = [[matcher, f'{np.mean(values):.3f}', f'{min(values):.3f}'] for matcher, values in shares.items()]
    return Table(['share within 3 px', 'mean of eight pairs', 'lowest'], rows, 1, _origin(content))


def _of_turns(content: Mapping[str, Any]) -> Table:
    """Matches after a rotation, in percent of those of the upright picture, means over pictures."""
    pictures = content['turns']['pictures']
    angles = [angle for angle in pictures[0]['within_3px'] if angle != '0']
    rows = []
    for matcher in dict.fromkeys(each['matcher'] for each in pictures):
        counts = [each['within_3px'] for each in pictures if each['matcher'] == matcher]
        rows.append([matcher, *(f'{np.mean([100 * each[angle] / each["0"] for each in counts]):.0f}' for angle in angles)])
    return Table(['% after degrees', *angles], rows, 1, _origin(content))


def _of_list(content: Mapping[str, Any]) -> Table:
    """Rows are the entries of a list in another file: it stands there `at` some keys, and the value of a column in an entry.

    Entries of a mapping have their `key` and their `value`.
    """
    source, columns = document(content['list']), content['columns']
    entries: Any = reduce(getitem, content['at'], source)
    if isinstance(entries, dict):
        entries = [{'key': key, 'value': value} for key, value in entries.items()]
    rows = [[_written(reduce(getitem, column['at'], entry), column.get('digits', 0), column.get('scale', 1)) for column in columns]
            for entry in entries]
    origin = _origin({'note': content.get('note', ''), **source})
    return Table([column['label'] for column in columns], rows, content.get('keys', 1), origin)


def _written(value: Any, digits: int, scale: float) -> str:
    if isinstance(value, list):
        return ', '.join(_written(each, digits, scale) for each in value)
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    return '' if value is None else f'{scale * value:.{digits}f}' if isinstance(value, float) else str(value)


def _of_verdicts(content: Mapping[str, Any]) -> Table:
    """The first matcher's pose AUC@10 minus another's at each stride; bold where the interval excludes 0."""
    rows = []
    for label, name in content['verdicts'].items():
        contests = document(name)['contests']
        rows.append([label, *(', '.join(_difference(each) for each in contests if each['other'] == other)
                              for other in content['others'])])
    return Table(['ours minus', *content['others']], rows, 1, f'*As in {content["as"]}.*')


def _difference(contest: Mapping[str, Any]) -> str:
    text = f'{round(contest["difference"], 1) + 0.0:+.1f}'
    return f'**{text}**' if contest['verdict'] in ('ahead', 'behind') else text


def _cell(report: Mapping[str, Any], name: str, column: Mapping[str, Any]) -> str:
    """The metrics of a column at its strides, of the matcher whose name is or ends so; without a name, of the first."""
    matcher = next(each for each in report['matchers'] if f' {each["name"]}'.endswith(f' {name}' if name else ''))
    values = [matcher['summary'].get(str(stride), {}).get(metric)
              for metric in column.get('metrics') or [column['metric']] for stride in column.get('strides', [1])]
    return ', '.join('-' if value is None else f'{value:.{column["digits"]}f}' for value in values)


def _of_stages(content: Mapping[str, Any]) -> Table:
    return _percentiles(content, content['stages']['stages'], 2)


def _of_device(content: Mapping[str, Any]) -> Table:
    return _percentiles(content, {name: values for name, values in content['device'].items() if name != 'prediction'}, 3)


def _of_times(content: Mapping[str, Any]) -> Table:
    """Rows are `labels` and the files of `benchmark stages` that they stand for; columns are percentiles of a stage in each file.

    A column without a stage is the mean number of layers.
    """
    rows = [[*row['labels'], *(', '.join(_time(document(name)['stages'], column) for name in row['files'])
                               for column in content['columns'])] for row in content['times']]
    heads = [*content['heads'], *(column['label'] for column in content['columns'])]
    origin = _origin({'note': content['note'], **document(content['times'][0]['files'][0])})
    return Table(heads, rows, len(content['heads']), origin)


def _time(run: Mapping[str, Any], column: Mapping[str, Any]) -> str:
    values = np.percentile(run['stages'][column['stage']], column['percentiles']) if 'stage' in column else [np.mean(run['layers'])]
    return ', '.join(f'{value:.{column["digits"]}f}' for value in values)


def _of_peers(content: Mapping[str, Any]) -> Table:
    """Pose AUC@10 of each matcher at all strides, with its refinement and without; and how many pairs these are."""
    found: dict[tuple[str, str], list[list[str]]] = {}
    for part in content['peers']['recordings']:
        scores = {name: f'{figures["own"][CONTESTED]:.1f}' for name, figures in part['matchers'].items()}
        for name in (name for name in scores if UNREFINED not in name):
            cells = [scores[name], scores[name + UNREFINED], str(part['pairs'])]
            found.setdefault((part['sequence'], name), []).append(cells)
    rows = [[*key, *(', '.join(column) for column in zip(*cells, strict=True))] for key, cells in found.items()]
    return Table(['recording', 'matcher', 'AUC@10', 'AUC@10, no refinement', 'pairs'], rows, 2, _origin(content))


def _of_devices(content: Mapping[str, Any]) -> Table:
    """Medians of several runs of `benchmark device`, each named by its model and its multiprocessors."""
    runs = {name: document(file) for name, file in content['devices'].items()}
    rows = [[*name.split(', '), *(f'{np.median(run["device"][stage]):.3f}' for stage in GPU_STAGES)] for name, run in runs.items()]
    return Table(['model', 'multiprocessors', *GPU_STAGES], rows, 2, _origin(next(iter(runs.values()))))


def _of_boards(content: Mapping[str, Any]) -> Table:
    """Ranges from bound to estimate that `benchmark device` predicts for each board, by model and stage."""
    runs = {model: document(name)['device']['prediction']['boards'] for model, name in content['boards'].items()}
    rows = [[board.name, f'{board.matrix_tflops:g}', f'{board.gb_per_s:g}', *(
        ' to '.join(f'{value:.{1 if value >= 0.1 else 2}f}' for value in stage.values())
        for boards in runs.values() for stage in boards[board.name].values())] for board in BOARDS]
    heads = [f'{model}: {stage}' for model in runs for stage in (*STAGES, 'together')]
    return Table(['board', 'FP16 TFLOP/s', 'GB/s', *heads], rows, 1, _origin(document(next(iter(content['boards'].values())))))


def _of_node(content: Mapping[str, Any]) -> Table:
    node = content['node']
    return _percentiles(content, {'the matcher': node['latency_ms'], 'the matcher with depth': node['depth']['latency_ms'],
                                  'a node that answers at once': node['echo']['latency_ms']}, 2)


def _percentiles(content: Mapping[str, Any], series: Mapping[str, Sequence[float]], digits: int) -> Table:
    rows = [[name, *(f'{value:.{digits}f}' for value in np.percentile(values, PERCENTILES))] for name, values in series.items()]
    return Table(['ms', 'median', *(f'p{percentile}' for percentile in PERCENTILES[1:])], rows, 1, _origin(content))


def _origin(content: Mapping[str, Any]) -> str:
    date = f', {content["date"]}' if content['date'] else ''
    command = f', `{content["command"].partition(" --json")[0]}`' if content['command'] else ''
    return f'*{content["machine"]}; {content["version"]}{date}{command}.{" " + content["note"] if content.get("note") else ""}*'


KINDS: dict[str, Callable[[Mapping[str, Any]], Table]] = {
    'list': _of_list, 'rows': _of_rows, 'reports': _of_reports, 'means': _of_means, 'verdicts': _of_verdicts, 'runs': _of_runs,
    'boards': _of_boards, 'devices': _of_devices, 'times': _of_times, 'peers': _of_peers, 'stages': _of_stages,
    'device': _of_device, 'node': _of_node, 'homographies': _of_homographies, 'turns': _of_turns}


def keep(file: Path, name: str, command: str) -> None:
    """What pages and charts read of an evaluation's report.json, into docs/figures/."""
    report = json.loads(file.read_text(encoding='utf-8'))
    keys = KEPT + (CHARTED if name.startswith('recordings/') else ())
    content = {'machine': report['machine'], 'version': version(), 'command': command, 'date': str(datetime.date.today()),
               'strides': report['strides'], 'estimator': report['estimator'],
               'contests': [contest for contest in report['contests'] if contest['metric'] == CONTESTED],
               'matchers': [{key: matcher[key] for key in keys} for matcher in report['matchers']]}
    target = FOLDER / f'{name}.json'
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(as_text(_short(content)))


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f'{value:.{DIGITS}g}')
    if isinstance(value, dict):
        return {key: _short(entry) for key, entry in value.items()}
    return [_short(entry) for entry in value] if isinstance(value, list) else value


def main(argv: list[str] | None = None) -> int:
    """Without arguments: write all pages and charts."""
    from tools.charts import CHARTS
    parser = argparse.ArgumentParser(prog='python -m tools.figures', description=__doc__)
    parser.add_argument('keep', nargs='*', metavar='keep FILE NAME COMMAND', help='a report.json, its name here, its command')
    if words := parser.parse_args(argv).keep:
        if words[0] != 'keep' or len(words) != 4:
            parser.error('keep takes FILE, NAME and COMMAND')
        keep(Path(words[1]), words[2], words[3])
    for path in pages():
        path.write_text(page(path.read_text(encoding='utf-8')), encoding='utf-8')
    for name, draw in CHARTS.items():
        (IMAGES / name).write_text(draw(), encoding='utf-8')
    return 0


if __name__ == '__main__':
    sys.exit(main())
