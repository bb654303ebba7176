"""Reports of made-up evaluations: numbers come back, the page is whole and alone, every picture is there and shows its data."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import sys
import warnings

import cv2
import numpy as np
import pytest
from support.evaluations import FOUR, KINDS, evaluation
from support.full_disks import FULL, room_for
from support.pages import Page
from support.schemas import SCHEMAS, violations

from lightglue_trt_eval.baselines import MatchedPoints
from lightglue_trt_eval.report import page
from lightglue_trt_eval.report.json_report import document
from lightglue_trt_eval.report.page import render, write_report
from lightglue_trt_eval.report.plots import draw_all, draw_worst
from lightglue_trt_eval.report.requirements import Requirement, check
from lightglue_trt_eval.report.side_by_side import CameraReport, write_side_by_side
from lightglue_trt_eval.report.summary import grouped, print_summary, stands_out, table, verdict, written
from lightglue_trt_eval.score.confidence import AHEAD, BEHIND, OPEN, ConfidenceInterval
from lightglue_trt_eval.score.metrics import CONTESTED, METRICS, DrawnPair, MatcherResult, OdometryResult
from lightglue_trt_ros.odometry.two_view import pose_auc
from lightglue_trt_ros.utils.console import print_table
from lightglue_trt_ros.utils.errors import ConfigError, LightglueTrtError

USUAL = {'trajectory', 'matches_over_time', 'pose_errors', 'epipolar_errors', 'strides', 'track_lengths', 'stage_times',
         'worst_pair_1', 'matches'}
ALL = USUAL | {f'worst_pair_{k}' for k in range(2, 6)}
HOSTILE = ('ours <b>&"x\'', 'SIFT $a_$ <script>alert(1)</script>', '_KLT {{ 7 * 7 }} with a name that is long')


@pytest.fixture
def pictures():
    pytest.importorskip('matplotlib', reason='pictures are drawn with matplotlib')
    pytest.importorskip('jinja2', reason='the page is a Jinja2 template')


@pytest.fixture(scope='module')
def drawn():
    """Figures of this file's evaluations, by what they show."""
    return {}


@pytest.fixture
def drawn_once(pictures, drawn, monkeypatch):
    """Figures of equal evaluations are drawn once: for tests of the files around them."""
    def draw(found):
        key = tuple((each.name, tuple(map(each.count, each.pairs)), each.odometry is None, len(each.worst_pairs),
                     each.error_histogram is None) for each in found.matchers)
        if key not in drawn:
            drawn[key] = draw_all(found)
        return drawn[key]

    monkeypatch.setattr(page, 'draw_all', draw)


@pytest.fixture
def pairs_alone(pictures, monkeypatch):
    """Of the figures only the worst pairs are drawn."""
    monkeypatch.setattr(page, 'draw_all', draw_worst)


def made(tmp_path, found):
    """The written report: paths by name, pictures, page. A warning is an error: fonts, layout and empty slices all warn."""
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        warnings.filterwarnings('ignore', category=DeprecationWarning)
        paths = write_report(tmp_path / 'report', found)
    assert {path.name for path in paths} == {path.name for path in (tmp_path / 'report').iterdir()}
    assert [path.name for path in paths[:2]] == ['report.json', 'report.html']
    images = {path.stem: cv2.imread(str(path)) for path in paths[2:]}
    return {path.name: path for path in paths}, images, Page(paths[1].read_text())


CASES = {
    'four': ({'worst': 5}, ALL),
    'six matchers': ({'names': tuple(KINDS)}, USUAL),
    'one matcher, one stride': ({'names': ('ours fp16',), 'strides': (1,)}, USUAL - {'strides'}),
    'no truth': ({'truth': False}, USUAL - {'pose_errors', 'epipolar_errors', 'strides'}),
    'no intrinsics': ({'intrinsics': False}, USUAL - {'trajectory', 'pose_errors', 'epipolar_errors', 'strides'}),
    'no pairs': ({'frames': 0}, set()),
    'one frame': ({'frames': 1}, set()),
    'one pair': ({'frames': 2, 'strides': (1,)}, USUAL - {'strides'}),
    'nothing at all': ({'names': ()}, set()),
    'hostile names, interrupted': ({'names': HOSTILE, 'frames': 9, 'interrupted': True}, USUAL),
}


@pytest.mark.parametrize('case', CASES)
@pytest.mark.slow
def test_a_whole_report(tmp_path, pictures, case):
    changes, expected = CASES[case]
    found = evaluation(**{'frames': 40, **changes})
    paths, images, page = made(tmp_path, found)
    assert set(images) == expected
    for name, image in images.items():
        assert image.shape[1] == 1200, name
        assert image.shape[0] <= 1600, name
        assert (image != 255).mean() > 0.005, name
    if case == 'four':
        for name in USUAL - {'worst_pair_1', 'matches'}:
            for colour in ('#0072b2', '#e69f00', '#009e73', '#cc79a7'):
                assert near(images[name], colour).sum() > 200, (name, colour)
    assert page.tags.count('img') == len(expected)
    assert {source.split(',')[0] for source in page.sources} <= {'data:', 'data:image/png;base64', 'data:image/jpeg;base64'}
    assert not {'script', 'iframe', 'object', 'form'} & set(page.tags)
    text = paths['report.html'].read_text()
    assert not re.search(r'url\(|@import|https?:', text)
    assert 'width=device-width' in text
    for matcher in found.matchers:
        assert matcher.name in page.text
        assert matcher.description in page.text
    assert ('Interrupted' in page.text) == found.interrupted
    assert all(note in page.text for note in found.notes)
    assert ('Nothing could be evaluated' in page.text) == (not expected)
    embedded = [base64.b64decode(source.split(',')[1]) for source in page.sources if source.startswith('data:image')]
    assert all(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) is not None for data in embedded)
    report = json.loads((paths['report.json']).read_text())
    assert [matcher['name'] for matcher in report['matchers']] == [matcher.name for matcher in found.matchers]


@pytest.mark.slow
def test_the_document_holds_the_numbers(tmp_path, pairs_alone):
    found = evaluation(frames=40)
    first = found.matchers[0]
    for name in ('rotation_deg', 'translation_deg', 'pose_error_deg'):
        first.pairs[1][name][3] = math.inf
    first.figures['dropped'] = math.nan
    found.recording['odd'] = {'path': tmp_path, 'value': np.float32(1.5)}
    write_report(tmp_path, found)
    text = (tmp_path / 'report.json').read_text()
    assert not re.search(r'\b(NaN|Infinity)\b', text)
    assert max(map(len, text.splitlines())) > 200  # lists of numbers stand on one line
    report = json.loads((tmp_path / 'report.json').read_text())
    assert report['schema'] == 2
    assert report['metrics']['ate_m'] == {'label': METRICS['ate_m'].label, 'unit': 'm', 'higher_is_better': False}
    assert report['recording']['odd'] == {'path': str(tmp_path), 'value': 1.5}
    assert report['error_edges_px'][-1] is None
    assert report['bootstrap'] == {'resamples': 200, 'level': 0.95, 'seed': 0}
    assert len(report['contests']) == 9 * len(CONTESTED) == 72
    contest = found.contests[1, 'ORB', 'pose_auc@10']
    assert report['contests'][9] == {'stride': 1, 'other': 'ORB', 'metric': 'pose_auc@10', 'pairs': 39, **{
        name: getattr(contest, name) for name in ('difference', 'low', 'high', 'freedom', 'verdict')}}
    ours = report['matchers'][0]
    interval = first.intervals(2)['pose_auc@10']
    assert ours['intervals']['2']['pose_auc@10'] == {'low': interval.low, 'high': interval.high, 'over': 38}
    assert set(ours['intervals']['1']) >= set(ours['summary']['1']) - {'dropped'}, 'every figure has its interval'
    for stride in found.strides:
        expected = {name: None if math.isnan(value) else value for name, value in first.summary(stride).items()}
        assert ours['summary'][str(stride)] == expected
        columns = ours['pairs'][str(stride)]
        assert columns['matches'] == first.pairs[stride]['matches'].tolist()
        assert {len(column) for column in columns.values()} == {first.count(stride)}
    columns = ours['pairs']['1']
    assert (columns['rotation_deg'][3], columns['pose_found'][3], columns['pose_found'][5]) == (None, False, True)
    assert columns['precision@3'][5] == pytest.approx(first.pairs[1]['precision@3'][5], rel=1e-6)
    assert ours['stage_ms']['frame']['p95'] == np.percentile(first.stage_ms['frame'], 95)
    assert sum(ours['track_lengths'].values()) == sum(first.track_lengths.values())
    poses = np.array(ours['odometry']['poses']).reshape(-1, 3, 4)
    np.testing.assert_allclose(poses, first.odometry.poses[:, :3], atol=1e-8)
    assert ours['worst'][0] == {'frames': [0, 1], 'badness': None, 'matches': 160, 'why': ''}


@pytest.mark.parametrize('case', [{}, {'truth': False}, {'intrinsics': False}, {'frames': 0}, {'frames': 2, 'strides': (1,)},
                                  {'interrupted': True, 'covered': 7}])
def test_the_document_is_as_its_schema_says(case):
    found = document(evaluation(**{'frames': 20, **case}))
    assert violations('report', found) == []
    found['matchers'][0]['pairs']['1']['frame'].append(0.5)
    del found['matchers'][0]['intervals']
    found['unheard'] = 1
    assert len(violations('report', found)) == 3


@pytest.mark.parametrize('name', ['report', 'fleet'])
def test_every_key_is_described(name):
    def undescribed(schema, place):
        named = {key: schema[key] for key in ('properties', '$defs') if key in schema}
        found = [f'{place}/{key}' for part in named.values() for key, value in part.items()
                 if '$ref' not in value and not value.get('description')]
        parts = [*((f'{place}/{key}', value) for part in named.values() for key, value in part.items()),
                 *((place, schema[key]) for key in ('items', 'additionalProperties') if isinstance(schema.get(key), dict)),
                 *((place, value) for value in schema.get('anyOf', []))]
        return found + [each for deeper, value in parts for each in undescribed(value, deeper)]
    assert undescribed(json.loads(SCHEMAS[name].read_bytes()), '') == []


def test_the_best_is_marked_where_intervals_tell_it():
    found = evaluation(tuple(KINDS), frames=60)
    rows = {row.name: row for row in table(found.matchers)}
    names = [matcher.name for matcher in found.matchers]

    def best(name):
        return [names[k] for k, cell in enumerate(rows[name].cells) if cell.best]

    assert best('track_length') == ['ours fp32']
    assert best('frame_ms_p50') == ['KLT']
    assert best('matches') == best('ate_m') == []  # within each other's intervals
    assert best('rpe_m') == []  # all the same
    assert best('retention') == best('layers') == []
    assert rows['retention'].cells[0].text == rows['layers'].cells[-1].text == '\N{EM DASH}'
    assert [name for group in grouped(list(rows.values())).values() for name in group] != []
    assert sum(map(len, grouped(list(rows.values())).values())) == len(rows)
    assert not any(cell.best for row in table(evaluation(('ours fp16',)).matchers) for cell in row.cells)
    assert written('matches', -0.2) == '0'
    assert written('ate_m', 1.23456, True) == '1.235 m'
    assert written('ate_m', math.inf, True) == '\N{EM DASH}'


def test_every_metric_has_its_heading():
    rows = table([MatcherResult('a', '', True, figures=dict.fromkeys(METRICS, 1.0))])
    assert len(rows) == len(METRICS)
    assert 'More' not in grouped(rows)
    assert [row.name for row in rows] == list(METRICS)


def test_labels_have_four_words_and_the_page_their_meaning():
    assert not [metric.label for metric in METRICS.values() if len(metric.label.split()) > 4]
    row = '<th scope="row" title="matches within 1 px of the better two-view model">inliers, %</th>'
    assert row in render(evaluation(frames=20), [])


def test_the_verdict_says_who_leads_and_whether_it_is_fast_enough():
    first, *rest = verdict(evaluation())
    assert re.fullmatch(r'ours fp16: pose AUC@10 [\d.]+ % \(95 % interval [\d.]+ to [\d.]+, 119 pairs\); the best '
                        r'baseline, SIFT, has [\d.]+ %: ahead \(\+[\d.]+ points, \+[\d.]+ to \+[\d.]+, over 119 pairs of both\)\.',
                        first)
    assert any('fast enough' in line for line in rest)
    assert ': behind (' in verdict(evaluation(('ORB', 'SIFT')))[0]
    assert ': cannot be told from these pairs (' in verdict(evaluation(('ours fp16', 'SIFT'), frames=4))[0]
    for found in (evaluation(), evaluation(('ORB', 'SIFT')), evaluation(('ours fp16', 'SIFT'), frames=4), evaluation(truth=False)):
        assert sum(verdict(found)[0].count(word) for word in (AHEAD, BEHIND, OPEN)) == 1, 'never two verdicts'
    assert any('too slow' in line for line in verdict(evaluation(hz=1000.0)))
    assert 'ours fp16: inliers ' in verdict(evaluation(truth=False))[0]
    assert len(verdict(evaluation(frames=0))) == 1


@pytest.mark.parametrize(('mine', 'others', 'out'), [
    ((9, 11), (4, 6), True), ((5, 15), (4, 6), False), ((9, 11), (4, 10), False), (None, (4, 6), False), ((9, 11), None, False)])
def test_a_figure_stands_out_where_each_is_outside_of_the_others_interval(mine, others, out):
    spans = [None if ends is None else ConfidenceInterval(ends[0], ends[1], 30) for ends in (mine, others)]
    assert stands_out(0, [10, 5], spans) is out
    assert stands_out(1, [None, 5], spans) is (others is not None), 'who has no figure does not count'


def test_the_page_starts_with_notes_then_verdict_then_table(pictures):
    told = render(evaluation(frames=40), [])
    assert re.search(r'>KLT</td><td>[+-][\d.]+</td><td>[+-][\d.]+ to [+-][\d.]+</td><td>39</td><td class="text">ahead<', told)
    assert re.search(r'<td class="over">39</td>\n<td class="best">[\d.]+<br><small>[\d.]+ to [\d.]+</small></td>', told)
    text = render(evaluation(truth=False, frames=20), [])
    assert 'inliers: ours fp16 minus the others' in text
    order = [text.index(part) for part in ('no ground truth', 'ours fp16: inliers ', '<table>', 'What ran', 'Details')]
    assert order == sorted(order)
    assert all(before.endswith('<div class="scroll">\n') for before in text.split('<table>')[:-1]), 'an edge shows that it is wider'
    assert re.search(r'\.scroll \{ [^}]*var\(--shade\)', text)
    assert 'Compared with' not in text
    assert 'the notes above say why' in text
    compared = Page(render(evaluation(tuple(KINDS), frames=20), []))
    assert 'Compared with ours fp32' in compared.text
    assert re.search(r'\(-\d+\.\d\)', compared.text)


def test_hostile_values_are_text(pictures):
    found = evaluation(HOSTILE, frames=9, notes=['<img src=x onerror=alert(1)>'], machine='<i>', estimator='</style><script>',
                       recording={'path': '/a/<b>.db3', 'key <u>': '<s>\udcff', 'frames': 9, 'duration_s': 0.0})
    page = Page(render(found, []).encode('utf-8', 'replace').decode())
    assert not {'b', 'i', 'u', 's', 'script'} & set(page.tags)
    assert '<b>.db3' in page.text
    assert '49' not in page.text.split('What ran')[1].split('Details')[0]


@pytest.mark.slow
def test_a_long_recording_stays_small(tmp_path, pictures):
    paths, _, _ = made(tmp_path, evaluation(FOUR, frames=2000, strides=(1,), worst=0))
    assert all(path.stat().st_size < 300_000 for name, path in paths.items() if name.endswith('.png'))
    assert paths['report.html'].stat().st_size < 2_000_000


def near(image, colour, tolerance=12):
    bgr = [int(colour[k:k + 2], 16) for k in (5, 3, 1)]
    return np.abs(image.astype(int) - bgr).max(axis=2) < tolerance


@pytest.mark.slow
def test_errors_have_colours_and_without_truth_there_is_one(tmp_path, pairs_alone):
    image = np.full((300, 400), 128, np.uint8)
    grid = np.stack(np.meshgrid(np.linspace(20, 380, 8), np.linspace(20, 280, 6)), -1).reshape(-1, 2).astype(np.float32)
    good = evaluation(('ours fp16',), frames=3, strides=(1,), worst=0)
    good.matchers[0].worst_pairs = [
        DrawnPair((0, 1), (image, image), MatchedPoints(grid, grid), np.zeros(len(grid)), 1.0),
        DrawnPair((0, 1), (image, image), MatchedPoints(grid, grid), np.full(len(grid), 40.0), 1.0),
        DrawnPair((0, 1), (image, image), MatchedPoints(grid, grid), None, 0.4),
        DrawnPair((0, 1), (image, image[:200, :300]), MatchedPoints(grid[:0], grid[:0]), np.zeros(0), math.inf),
        DrawnPair((0, 1), (image, image), MatchedPoints(grid[:1], grid[:1]), np.array([np.nan]), 3.0)]
    _, images, _ = made(tmp_path, good)
    drawn = [images[f'worst_pair_{k}'][130:560] for k in range(1, 5)]
    counts = [(near(image, '#3fc5ff', 30).sum(), near(image, '#d1003f', 30).sum()) for image in drawn]
    assert counts[0][0] > 3000 > 100 > counts[0][1]
    assert counts[1][1] > 3000 > 100 > counts[1][0]
    assert counts[2][0] > 3000 > 100 > counts[2][1]
    assert counts[3] == (0, 0)


@pytest.mark.slow
def test_wide_images_stand_above_each_other(tmp_path, pairs_alone):
    _, images, _ = made(tmp_path, evaluation(('ours fp16',), frames=3, strides=(1,), size=(94, 310), worst=1))
    assert images['worst_pair_1'].shape[0] > 2 * 1200 * 94 / 310


@pytest.mark.slow
def test_a_trajectory_that_runs_away_or_has_gaps_does_not_hide_the_others(tmp_path, pictures):
    found = evaluation(FOUR, frames=60, worst=0)
    found.matchers[1].odometry.poses[30:, :3, 3] += 1e5
    found.matchers[2].odometry.poses[10:20] = np.nan
    still = np.tile(np.eye(4), (60, 1, 1))
    found.matchers[3].odometry = OdometryResult(np.arange(60), np.arange(60.0), still, None, 'unit')
    paths, images, _ = made(tmp_path, found)
    rows, columns = np.nonzero(near(images['trajectory'][60:700], '#0072b2'))
    assert np.ptp(columns) > 500
    assert np.ptp(rows) > 200
    assert 'go on outside' in paths['report.html'].read_text()


@pytest.mark.slow
def test_a_new_report_replaces_the_old_pictures(tmp_path, pairs_alone):
    write_report(tmp_path, evaluation(frames=5, worst=2))
    (tmp_path / 'mine.png').write_bytes(b'')
    paths = write_report(tmp_path, evaluation(frames=5, truth=False, worst=1, strides=(1,)))
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in paths} | {'mine.png'}


@pytest.mark.parametrize(('absent', 'left'), [('matplotlib', {'report.json', 'report.html'}), ('jinja2', None)])
@pytest.mark.slow
def test_what_is_not_installed_is_left_out_and_said(tmp_path, monkeypatch, drawn_once, absent, left):
    monkeypatch.setattr(page, 'find_spec', lambda name: None if name == absent else object())
    monkeypatch.setitem(sys.modules, absent, None)
    (tmp_path / 'report.html').write_text('of an earlier run')
    found = evaluation(frames=5, worst=0)
    names = {path.name for path in write_report(tmp_path, found)}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert names == left if left else 'report.html' not in names and 'trajectory.png' in names
    assert [note for note in found.notes if absent in note] == found.notes[-1:]
    assert absent in (tmp_path / 'report.json').read_text()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / 'file').write_text('in the way')
    with pytest.raises(LightglueTrtError, match=r'file/report cannot be written .*another output folder'):
        write_report(tmp_path / 'file' / 'report', evaluation(frames=0))
    if os.geteuid():
        (tmp_path / 'closed').mkdir(mode=0o500)
        with pytest.raises(LightglueTrtError, match='cannot be written'):
            write_report(tmp_path / 'closed', evaluation(frames=0))


@pytest.mark.parametrize('earlier', [False, True])
@pytest.mark.slow
def test_a_full_disk_leaves_the_whole_report_before_or_none(tmp_path, pairs_alone, earlier):
    """There is room for report.json (7 kB), and for no page."""
    if earlier:
        write_report(tmp_path, evaluation(frames=5, worst=2))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with room_for(30_000), pytest.raises(LightglueTrtError, match=f'{FULL}\\), and nothing was: choose another output folder'):
        write_report(tmp_path, evaluation(frames=5, truth=False, strides=(1,)))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with room_for(2_000), pytest.raises(LightglueTrtError, match=FULL):
        write_side_by_side(tmp_path, [CameraReport('front', evaluation(frames=5), [])])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_terminal_gets_table_verdict_and_notes(capsys):
    print_summary(evaluation(frames=40, truth=False, interrupted=True))
    text = capsys.readouterr().out
    assert re.search(r'matches\W+39\W+\d+ ±\d+\W', text)
    assert re.search(r'fps\W+39\W.* ±[\d.]+\*', text)
    assert 'stride4.matches' in text
    assert 'Interrupted' in text
    assert 'pose AUC@10: ours fp16 minus the others' not in text
    assert 'note: no ground truth' in text
    assert 'inliers: ours fp16 minus the others, points' in text
    print_summary(evaluation(('ours fp16', 'SIFT')))
    text = capsys.readouterr().out
    assert 'pose AUC@10: ours fp16 minus the others, points' in text
    assert re.search(r'4\W+SIFT\W+[+-][\d.]+\W+[+-][\d.]+ to [+-][\d.]+\W+116\W+ahead', text)
    print_summary(evaluation(('ours fp16', 'ours fp32'), frames=40, strides=(1,)))
    assert re.search(r'1\W+ours fp32.*cannot be told from these pairs', capsys.readouterr().out)
    print_summary(evaluation(frames=0))
    assert 'Nothing could be evaluated' in capsys.readouterr().out


@pytest.mark.parametrize(('text', 'over', 'expected'), [
    ('pose_auc@10=40', False, Requirement('pose_auc@10', 40.0)),
    (' stride4.pose_auc@10 = 2e1 ', False, Requirement('pose_auc@10', 20.0, 4)),
    ('ate_m=0.5', True, Requirement('ate_m', 0.5)), ('stride1.matches=200', False, Requirement('matches', 200.0))])
def test_requirements_are_read(text, over, expected):
    assert Requirement.parse(text, over=over) == expected


@pytest.mark.parametrize(('text', 'over', 'message'), [
    ('pose_auc@11=40', False, r'no metric pose_auc@11: did you mean pose_auc@10\? Metrics: matches, '),
    ('zzz=1', False, 'no metric zzz'),
    ('matches', False, 'NAME=VALUE'), ('matches=', False, 'NAME=VALUE'), ('matches=many', False, 'many is not a number'),
    ('matches=nan', False, 'not a number'), ('ate_m=1', False, 'ate_m is better when lower; use --fail-over'),
    ('matches=1', True, 'matches is better when higher; use --fail-under'), ('stride0.matches=1', False, 'count from 1')])
def test_requirements_that_cannot_be_meant_are_refused(text, over, message):
    with pytest.raises(ConfigError, match=message):
        Requirement.parse(text, over=over)


def test_requirements_fail_where_missed_or_not_measured():
    found = evaluation(frames=40)
    auc = found.matchers[0].summary()['pose_auc@10']

    def failures(*texts, over=False, of=found):
        return check([Requirement.parse(text, over=over) for text in texts], of)

    assert failures(f'pose_auc@10={auc!r}', 'matches=1', 'stride4.matches=1') == []
    assert failures(f'pose_auc@10={auc + 1e-6!r}')[0].startswith('pose_auc@10 of ours fp16 is ')
    assert failures('matches=9999', 'stride4.matches=9999')[1].startswith('stride4.matches of ours fp16 is ')
    assert failures('ate_m=1', over=True) == []
    assert failures('ate_m=0.1', over=True) == ['ate_m of ours fp16 is 0.105 m, over the required 0.1 m']
    assert 'stride 3 was not evaluated (evaluated: 1, 2, 4)' in failures('stride3.matches=1')[0]
    assert 'could not be measured for ours fp16' in failures('pose_auc@10=1', of=evaluation(frames=40, truth=False))[0]
    assert 'could not be measured' in failures('matches=1', of=evaluation(frames=0))[0]
    assert 'no matcher ran' in failures('matches=1', of=evaluation(()))[0]
    found.matchers[0].figures['ate_m'] = math.inf
    assert 'is inf m, over' in failures('ate_m=1', over=True)[0]
    assert failures('depth_points=1', 'stereo_points=1', 'stride2.fps=1') == [
        'depth_points could not be measured for ours fp16: give --depth; required 1 %',
        'stereo_points could not be measured for ours fp16: give --stereo; required 1 %',
        'stride2.fps could not be measured for ours fp16: only stride 1 has it; required 1 1/s']


def test_requirements_of_live_and_agreement_hold_for_who_has_them():
    found = evaluation(('ours fp32', 'ours fp8', 'SIFT'), frames=40)

    def failures(text, over=False):
        return check([Requirement.parse(text, over=over)], found)

    assert failures('retention=80') == []
    assert failures('retention=95') == ['retention of ours fp8 is 90.0 %, under the required 95 %']
    assert failures('dropped=1', over=True) == ['dropped could not be measured for ours fp32: give --live; required 1']
    live = evaluation(('ours live',), frames=40).matchers[0]
    live.figures['dropped'] = 2.0
    found.matchers.append(live)
    assert failures('dropped=2', over=True) == []
    assert failures('dropped=1', over=True) == ['dropped of ours live is 2, over the required 1']


@pytest.mark.slow
def test_the_document_is_json_that_other_programs_read(tmp_path, drawn_once):
    write_report(tmp_path, evaluation(frames=5, worst=0))
    assert json.loads((tmp_path / 'report.json').read_bytes())['package'] == 'lightglue_trt_ros'


@pytest.mark.parametrize('columns', [30, 60, 80])
def test_no_terminal_is_so_narrow_that_words_break(columns, monkeypatch, capsys):
    monkeypatch.setenv('COLUMNS', str(columns))
    monkeypatch.setattr(sys.stdout, 'isatty', lambda: True)
    label, verdict = 'matches within one pixel of the true epipolar line', 'cannot be told from these pairs'
    print_table('Title', ['', 'over', 'ours', 'verdict'], [[label, '15 to 119', '-12345.6 ±1234.5*', verdict]], 1)
    printed = re.sub(r'\x1b\[\d*m', '', capsys.readouterr().out)
    assert {*label.split(), *verdict.split()} <= set(re.findall(r'[a-z]+', printed))
    assert '15 to 119' in printed
    assert '-12345.6 ±1234.5*' in printed
    assert max(map(len, printed.splitlines())) <= max(columns, 62)


@pytest.mark.parametrize('columns', [63, 80])  # 80 less what launch writes before each line
@pytest.mark.parametrize('strides', [(1,), (1, 2, 4)])
def test_the_tables_fit_the_terminal(columns, strides, monkeypatch, capsys):
    monkeypatch.setenv('COLUMNS', str(columns))
    monkeypatch.setattr(sys.stdout, 'isatty', lambda: columns == 80)
    print_summary(evaluation(('ours', 'SIFT', 'ORB', 'KLT'), strides=strides))
    printed = re.sub(r'\x1b\[\d*m', '', capsys.readouterr().out)
    tables = [line for line in printed.splitlines() if re.search(r'[│┃━─]|^ ?(stride\d\.)?[a-z_]+(@\d+)? ', line)
              and not line.startswith('pose AUC')]
    assert max(map(len, tables)) <= columns
    assert re.search(r'(?m)^\W*precision@1 .*\d\.\d\*.*\d\.\d', printed), 'a figure is one line'
    assert ('stride4.pose_auc@10' in printed) == (4 in strides)


def test_an_interrupted_evaluation_says_what_it_covers(capsys):
    found = evaluation(frames=40, interrupted=True, covered=40)
    found.recording['frames'] = 160
    print_summary(found)
    assert ('Interrupted: the figures cover the first 40 of 160 frames (25 %), pairs: 39 of stride 1, 38 of stride 2, 36 of '
            'stride 4; what follows is not in them.') in capsys.readouterr().out


def test_figures_say_on_how_many_pairs_they_rest():
    found = evaluation(('ours fp16', 'SIFT'), frames=40, strides=(1, 2))
    for matcher in found.matchers:  # the camera stands still on the first ten
        matcher.pairs[1]['pose_error_deg'][:10] = math.nan
    rows = {row.name: row for row in table(found.matchers)}
    assert [rows[name].over for name in ('matches', 'pose_auc@10', 'rotation_auc@2', 'pose_failures')] == ['39', '29', '39', '39']
    errors = found.matchers[0].pairs[1]['pose_error_deg'][10:]
    assert found.matchers[0].summary()['pose_auc@10'] == 100 * pose_auc(errors, [10])[0]
    said = [line for line in verdict(found) if 'The pose AUC is over' in line]
    assert len(said) == 1
    assert '29 of 39 consecutive pairs, 38 of 38 pairs 2 apart' in said[0]
    assert "in the others the ground truth moves less than 1 % of the scene's depth" in said[0]
    for errors in found.matchers[0].pairs.values():
        errors['pose_error_deg'][:] = math.nan
    assert any(line.startswith('There is no pose AUC: in all pairs the ground truth') for line in verdict(found))


@pytest.mark.parametrize(('step_m', 'unknown', 'said'), [
    (0.0001, 0, None), (0.01, 0, '0.0004 m off the true trajectory of 0.29 m (ATE).'),
    (0.01, 4, '0.0004 m off the true trajectory of 0.29 m (ATE), with 5 steps whose true length is unknown and taken from the step '
     'before.')])
def test_ate_comes_with_the_length_of_the_path_and_its_unknown_steps(step_m, unknown, said):
    found, true = evaluation(frames=30), np.tile(np.eye(4), (30, 1, 1))
    true[:, 0, 3] = step_m * np.arange(30)
    true[10:10 + unknown] = np.nan
    found.matchers[0].odometry = OdometryResult(np.arange(30), np.arange(30.0), true, true, 'truth', {'ate_m': 0.0004})
    lines = [line for line in verdict(found) if 'ends up' in line]
    assert [line.partition('ends up ')[2] for line in lines] == ([said] if said else [])


