"""Tables, numbers and charts of README and docs/ are what `make figures` writes of docs/figures/."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools import figures
from tools.charts import CHARTS

FILES = sorted(figures.FOLDER.rglob('*.json'))


@pytest.mark.parametrize('path', figures.pages(), ids=lambda path: path.name)
def test_tables_and_numbers_of_a_page_are_those_of_the_files(path: Path) -> None:
    text = path.read_text()
    assert text == figures.page(text), 'run make figures'


@pytest.mark.parametrize('name', CHARTS)
def test_chart_is_drawn_from_the_files(name: str) -> None:
    assert (figures.IMAGES / name).read_text() == CHARTS[name](), 'run make figures'


@pytest.mark.parametrize('path', FILES, ids=lambda path: path.stem)
def test_file_says_where_its_numbers_come_from(path: Path) -> None:
    content = json.loads(path.read_text())
    if not content.get('machine'):
        return  # made of other files
    assert content.keys() >= set(figures.ORIGIN)
    assert content['version']
    assert content['command']
    assert content['date']


def test_each_file_is_used() -> None:
    used = '\n'.join(path.read_text() for path in [*figures.pages(), *FILES, Path(__file__).parents[2] / 'tools' / 'charts.py'])
    names = [str(path.relative_to(figures.FOLDER).with_suffix('')) for path in FILES]
    places = [(name, name.rpartition('_')[0] or name) for name in names if 'recordings' not in name]  # also by what a column is of
    assert [name for name, of in places if not re.search(rf'[ \'"/{{]({re.escape(name)}|{re.escape(of)})[ \'"/]', used)] == []


def test_every_mark_has_its_end() -> None:
    for path in figures.pages():
        text = path.read_text()
        found = len(figures.BLOCK.findall(text)) + len(figures.CELL.findall(text))
        assert len(re.findall(r'<!-- figures?: \w', text)) == found, path.name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figures, 'FOLDER', tmp_path)
    origin = {'machine': 'a CPU', 'version': '1.0', 'command': 'benchmark stages', 'date': '2026-01-01'}
    (tmp_path / 'times.json').write_text(json.dumps({**origin, 'columns': ['a', 'ms'], 'rows': [['x', '1.5'], ['y', '2.5']]}))
    (tmp_path / 'both.json').write_text(json.dumps({'columns': ['', 'ms'], 'rows': [['of x', '{times/x/ms} ms']]}))
    (tmp_path / 'stages.json').write_text(json.dumps({**origin, 'stages': {'stages': {'extract': [1, 2, 3]}}}))
    return tmp_path


def test_table_stands_between_its_marks_with_its_origin(folder: Path) -> None:
    text = figures.page('A\n<!-- figures: times -->\nold\n<!-- end -->\nB')
    assert '| y | 2.5 |' in text
    assert '*a CPU; 1.0, 2026-01-01, `benchmark stages`.*' in text
    assert 'old' not in text
    assert figures.page(text) == text


def test_cell_of_a_file_stands_in_a_sentence(folder: Path) -> None:
    assert '-->2.5<!--' in figures.page('It takes <!-- figure: times/y/ms --><!-- end --> ms')
    with pytest.raises(SystemExit, match='times/z/ms'):
        figures.page('<!-- figure: times/z/ms --><!-- end -->')


def test_table_takes_cells_of_others(folder: Path) -> None:
    assert figures.load('both').rows == [['of x', '1.5 ms']]


def test_json_of_benchmark_is_read(folder: Path) -> None:
    assert figures.load('stages').cell('extract', 'median') == '2.00'


def test_list_of_a_command_becomes_rows_and_reports_stand_side_by_side(folder: Path) -> None:
    origin = {'machine': 'a CPU', 'version': '1.0', 'command': 'benchmarks x', 'date': '2026-01-01'}
    (folder / 'run.json').write_text(json.dumps({**origin, 'x': {'parts': [{'name': 'a', 'both': [1.25, 2.0], 'metres': True}]}}))
    (folder / 'view.json').write_text(json.dumps({'list': 'run', 'at': ['x', 'parts'], 'columns': [
        {'label': 'part', 'at': ['name']}, {'label': 'both', 'at': ['both'], 'digits': 1}, {'label': 'metres', 'at': ['metres']}]}))
    assert figures.load('view').rows == [['a', '1.2, 2.0', 'yes']]
    for kind, value in (('dim', 70.0), ('fog', 71.0)):
        matchers = [{'name': 'ours', 'summary': {'1': {'one': value, 'two': 90.0}}}, {'name': 'KLT', 'summary': {'1': {'one': 5}}}]
        (folder / f'r_{kind}.json').write_text(json.dumps({**origin, 'matchers': matchers}))
    (folder / 'light.json').write_text(json.dumps({'reports': {'r': 'r'}, 'columns': [
        {'label': 'dim', 'of': '_dim', 'metrics': ['one', 'two'], 'digits': 0},
        {'label': 'fog, KLT', 'of': '_fog', 'matcher': 'KLT', 'metrics': ['one', 'two'], 'digits': 0}]}))
    assert figures.load('light').rows == [['r', '70, 90', '5, -']]


def test_runs_of_several_shares_of_a_gpu_become_one_table(folder: Path) -> None:
    origin = {'machine': 'a GPU', 'version': '1.0', 'command': 'benchmark device', 'date': '2026-01-01'}
    times = {'extract': [1, 2, 3], 'match': [4], 'place': [5], 'together': [11], 'at exit 0': [7]}
    (folder / 'run.json').write_text(json.dumps({**origin, 'device': times}))
    (folder / 'gpu_times.json').write_text(json.dumps({'devices': {'ours, 8': 'run'}}))
    assert figures.load('gpu_times').rows == [['ours', '8', '2.000', '4.000', '5.000', '11.000', '7.000']]


def test_report_is_kept_without_its_pairs(folder: Path) -> None:
    matcher = {'name': 'ours', 'ours': True, 'summary': {'1': {'pose_auc@10': 53.8123456}}, 'intervals': {},
               'deviation_histogram': [1], 'pairs': {'1': {}}}
    report = {'machine': 'a CPU', 'strides': [1], 'estimator': 'ml', 'matchers': [matcher], 'contests': [
        {'stride': 1, 'other': 'SIFT', 'metric': 'pose_auc@10', 'difference': 3.21, 'verdict': 'ahead'},
        {'stride': 1, 'other': 'SIFT', 'metric': 'pose_auc@5', 'difference': 9.0, 'verdict': 'ahead'}]}
    (folder / 'report.json').write_text(json.dumps(report))
    figures.keep(folder / 'report.json', 'recordings/r', 'evaluate_bag r')
    (folder / 'view.json').write_text(json.dumps({'reports': {'r': 'recordings/r'}, 'matchers': {'ours': 'ours'}, 'columns': [
        {'label': 'AUC@10', 'metric': 'pose_auc@10', 'strides': [1, 2], 'digits': 1}]}))
    assert figures.load('view').rows == [['r', 'ours', '53.8, -']]
    assert 'pairs' not in figures.document('recordings/r')['matchers'][0]
    (folder / 'verdicts.json').write_text(json.dumps({'as': 'above', 'verdicts': {'r': 'recordings/r'}, 'others': ['SIFT']}))
    assert figures.load('verdicts').rows == [['r', '**+3.2**']]


def test_runs_of_stages_become_rows_of_percentiles(folder: Path) -> None:
    origin = {'machine': 'a CPU', 'version': '1.0', 'command': 'benchmark stages --json run.json', 'date': '2026-01-01'}
    for name, layers in (('run', [0, 3]), ('all', [6, 6])):
        (folder / f'{name}.json').write_text(json.dumps({**origin, 'stages': {
            'stages': {'frame': [1.0, 2.0, 3.0]}, 'layers': layers}}))
    (folder / 'view.json').write_text(json.dumps({
        'heads': ['recording', 'model'], 'note': 'FP32.', 'times': [{'labels': ['r', 'ours'], 'files': ['run', 'all']}],
        'columns': [{'label': 'layers', 'digits': 1},
                    {'label': 'frame', 'stage': 'frame', 'percentiles': [50, 100], 'digits': 0}]}))
    table = figures.load('view')
    assert table.rows == [['r', 'ours', '1.5, 6.0', '2, 3, 2, 3']]
    assert table.cell('r, ours', 'layers') == '1.5, 6.0'
    assert table.origin == '*a CPU; 1.0, 2026-01-01, `benchmark stages`. FP32.*'


def test_strides_of_peers_stand_in_one_cell(folder: Path) -> None:
    origin = {'machine': 'a CPU', 'version': '1.0', 'command': 'benchmarks peers', 'date': '2026-01-01'}
    (folder / 'peers.json').write_text(json.dumps({**origin, 'peers': {'recordings': [
        {'sequence': 'r', 'stride': stride, 'pairs': 40 // stride, 'matchers': {
            name: {'own': {'pose_auc@10': value + stride}} for name, value in (('a', 50), ('a, refinement none', 40))}}
        for stride in (1, 2)]}}))
    assert figures.load('peers').rows == [['r', 'a', '51.0, 52.0', '41.0, 42.0', '40, 20']]


def test_file_of_no_known_kind_is_refused(folder: Path) -> None:
    (folder / 'odd.json').write_text('{}')
    with pytest.raises(SystemExit, match=r'odd\.json has none of the keys'):
        figures.load('odd')
