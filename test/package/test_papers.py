"""README and docs: short sentences in the field's words, links and paths that exist, examples that run. And the code's messages."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import yaml
from support.no_pictures import NO_PICTURES

import lightglue_trt_ros

REPOSITORY = Path(__file__).resolve().parents[2]
ROBOT, WORKBENCH = PACKAGES = REPOSITORY / 'lightglue_trt_ros', REPOSITORY / 'lightglue_trt_eval'
PAGES = sorted((REPOSITORY / 'docs').glob('*.md'))
PAPERS = [*(REPOSITORY / name for name in ('README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'training/README.md')), *PAGES]
README_LINES, README_WORDS, ALL_WORDS, IMAGE_BYTES = 110, 750, 24_000, 2_000_000
MEAN_WORDS, MOST_WORDS = 20, 40
FENCE = re.compile(r'(?:<!-- (?P<comment>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$', re.MULTILINE | re.DOTALL)
LINK = re.compile(r'!?\[([^\]]*)\]\(([^)\s]+)\)')
CODE = re.compile(r'`[^`]+`')
REPLACED = {  # outside of code, where fields and parameters keep their names
    r'plac(?:ing|ed|ement)': 'refining, refined, refinement', r'carr(?:y|ied|ying)': 'propagate, propagated',
    r'pairs? of weights': 'model', r'bundles?(?! adjustment)': 'engine set', r'turn(?:s|ed|ing)?': 'rotation, rotated',
    r'spreads?': 'confidence interval, standard deviation', r'claim(?:s|ed)?|believ(?:e|es|ed|able)': 'covariance, estimate',
    r'gates?': 'acceptance check', r'(?<!ground )truth': 'ground truth', r'beside': 'next to, with', r'of before|of then': 'former',
    r'whoever|thereof|hence': 'a noun'}
RIDDLES = re.compile(r'^(?:What|Whoever|Those that)\b.*[^?]$|\b(?:too|alone|as well)\.$')
PATH = re.compile(r'(?<![\w/.$}])((?:[\w.-]+/)+[\w.-]+\.(?:py|cu|ptx|yaml|xml|rviz|md|csv|toml))(?![\w/])')
NOT_OURS = ('build/', 'src/', 'fleet/', 'masks/', 'mounting/')  # of examples
FOREIGN = {'PIP_EXTRA_INDEX_URL', 'MALLOC_TRIM_THRESHOLD_', 'least_squares', 'jac_sparsity', 'feature_tracker', 'body_T_cam1',
           'KubeCluster', 'robot_state_publisher', 'static_transform_publisher', 'robot_localization'}
OPTIONS_OF_OTHERS = {'--ros-args', '--ignore-src', '--from-paths', '--packages-select', '--system-site-packages',
                     '--break-system-packages', '--nthreads', '--nworkers', '--nproc'}  # of ROS, pip, Dask and torchrun
IDENTIFIER = re.compile(r'`([A-Za-z]+_\w+|_\w+|[A-Z][a-z]+[A-Z]\w+)`|`(?:\w+\.)?(\w+)\([^`]*`')  # or a call


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    code: str
    comment: str  # of the line above

    @property
    def runs(self) -> bool:
        return self.language in ('bash', 'python') and not self.comment.startswith('no-run: ')


def blocks(path: Path) -> list[Block]:
    return [Block(path.name, match['language'], match['code'], match['comment'] or '')
            for match in FENCE.finditer(path.read_text())]


def prose(path: Path) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables; each piece of code is one word."""
    text = re.sub(r'<!--.*?-->', '', FENCE.sub('', path.read_text()), flags=re.DOTALL)
    text = CODE.sub('CODE', LINK.sub(r'\1', text)).replace('*', '')
    for paragraph in re.split(r'\n\s*\n|\n(?=\s*(?:[-+]|\d+\.) )|\n(?=[|#])', text):
        stripped = ' '.join(paragraph.split())
        if stripped.startswith('|'):
            yield from (cell.strip() for cell in stripped.strip('|').split('|') if re.search('[a-z]', cell))
        elif stripped and not stripped.startswith(('#', 'On this page:')):
            yield re.sub(r'^(?:[-+]|\d+\.) ', '', stripped)


def sentences(path: Path) -> list[str]:
    return [sentence for paragraph in prose(path) for sentence in re.split(r'(?<=[.!?]) +(?=[A-Z*(])', paragraph)
            if re.search('[a-z]{2}', sentence)]


def words(sentence: str) -> int:
    """Figures are no words: a list of ten is read as one."""
    return len(re.findall(r"[A-Za-z][\w'@-]*", sentence))


def headings(path: Path) -> set[str]:
    """The anchors of a page."""
    text = FENCE.sub('', path.read_text())
    return {re.sub(r'\s+', '-', re.sub(r'[^\w\s-]', '', title).strip().lower())
            for title in re.findall(r'^#+ (.+)$', text, re.MULTILINE)}


@pytest.mark.parametrize('path', PAPERS, ids=lambda path: f'{path.parent.name}/{path.name}')
def test_sentences_are_short(path: Path) -> None:
    found = sentences(path)
    assert not [sentence for sentence in found if words(sentence) > MOST_WORDS]
    lengths = [words(sentence) for sentence in found]
    assert np.mean([length for length in lengths if length > 3]) <= MEAN_WORDS  # most cells of tables are no sentences


@pytest.mark.parametrize('path', PAPERS, ids=lambda path: f'{path.parent.name}/{path.name}')
def test_words_are_the_fields(path: Path) -> None:
    for sentence in sentences(path):
        for replaced, by in REPLACED.items():
            assert not re.search(rf'\b(?:{replaced})\b', sentence, re.IGNORECASE), f'say {by}: {sentence}'
        assert not RIDDLES.search(sentence), f'name the thing: {sentence}'


def texts(path: Path) -> Iterator[str]:
    """What a module says: its strings of two words and more, without docstrings and what is put into them."""
    tree = ast.parse(path.read_text())
    comments = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = ''.join(str(part.value) if isinstance(part, ast.Constant) else '{}' for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in comments | parts:
            text = node.value
        else:
            continue
        if ' ' in text.strip():
            yield re.sub(r'--[a-z-]+', 'OPTION', text)


@pytest.mark.parametrize('path', [path for folder in (*PACKAGES, REPOSITORY / 'benchmarks', REPOSITORY / 'launch')
                                  for path in sorted(folder.rglob('*.py'))], ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_messages_are_in_the_fields_words(path: Path) -> None:
    for text in texts(path):
        for replaced, by in REPLACED.items():
            assert not re.search(rf'\b(?:{replaced})\b', text, re.IGNORECASE), f'say {by}: {text}'
        assert not re.search(r'\b(?:too|alone|as well)\b(?=[.:;,]|$)', text), f'name the thing: {text}'


def test_the_readme_is_short() -> None:
    text = (REPOSITORY / 'README.md').read_text()
    assert len(text.splitlines()) <= README_LINES
    assert len(text.split()) <= README_WORDS


def test_pages_and_pictures_are_few() -> None:
    assert sum(len(path.read_text().split()) for path in PAGES) <= ALL_WORDS
    pictures = list((REPOSITORY / 'docs' / 'images').iterdir())
    assert sum(path.stat().st_size for path in pictures) < IMAGE_BYTES
    shown = [match for path in PAPERS for match in re.findall(r'!\[([^\]]+)\]\(([^)]+)\)', path.read_text())]
    assert {path.name for path in pictures} == {Path(target).name for text, target in shown if len(text.split()) > 3}


@pytest.mark.parametrize('path', PAGES, ids=lambda path: path.name)
def test_a_page_begins_with_its_readers_and_its_contents(path: Path) -> None:
    text = FENCE.sub('', path.read_text())
    assert re.match(r'# [^\n]+\n\n(?:The |For )', text), 'the first paragraph says who needs the page'
    contents = next(line for line in text.splitlines() if line.startswith('**On this page:** '))
    chapters = [title.replace('`', '') for title in re.findall(r'^## (.+)$', text, re.MULTILINE)]
    assert [title for title, _ in LINK.findall(contents)] == chapters


@pytest.mark.parametrize('path', PAPERS, ids=lambda path: f'{path.parent.name}/{path.name}')
def test_examples_import_the_public_names(path: Path) -> None:
    for code in (block.code for block in blocks(path)):
        assert not re.search(r'(?:from|import) lightglue_trt_ros\.', code), 'deeper paths may change'
        for names in re.findall(r'from lightglue_trt_ros import ([\w, ]+)', code):
            assert set(names.split(', ')) <= set(lightglue_trt_ros.__all__)
    assert path.name != 'python.md' or '.py`' not in path.read_text(), 'name what can be imported, not its file'


@pytest.mark.parametrize('path', PAPERS, ids=lambda path: f'{path.parent.name}/{path.name}')
def test_links_lead_somewhere(path: Path) -> None:
    for _, target in LINK.findall(FENCE.sub('', path.read_text())):
        if target.startswith('https://'):
            continue
        name, _, anchor = target.partition('#')
        page = (path.parent / name).resolve() if name else path
        assert page.exists(), target
        assert not anchor or anchor in headings(page), target


@pytest.mark.parametrize('path', PAPERS, ids=lambda path: f'{path.parent.name}/{path.name}')
def test_files_and_names_in_the_docs_exist(path: Path) -> None:
    text = path.read_text()
    places = (REPOSITORY, *PACKAGES, path.parent)
    for name in PATH.findall(LINK.sub(r'\1', text)):
        assert name.startswith(NOT_OURS) or any((place / name).exists() for place in places), name
    folders = {entry.name for place in (*PACKAGES, REPOSITORY) for entry in place.iterdir() if entry.is_dir()} - {'build'}
    for name in re.findall(rf'`((?:{"|".join(folders)})/(?:\w+/)*)`', text):
        assert any((place / name).is_dir() for place in places), name
    for match in IDENTIFIER.finditer(FENCE.sub('', text)):
        name = match[1] or match[2]
        assert name in FOREIGN or name in names_in_the_code(), name


@cache
def names_in_the_code() -> set[str]:
    """All words of the code, and of the files that configure it."""
    files = [path for folder in ('lightglue_trt_ros', 'lightglue_trt_eval', 'benchmarks', 'training', 'test', 'launch', 'config')
             for path in (REPOSITORY / folder).rglob('*') if path.suffix in ('.py', '.yaml', '.json', '.cu')]
    files = [REPOSITORY / 'setup.py', REPOSITORY / 'Makefile', *(path for path in files if path != Path(__file__))]
    return {word for path in files for word in re.findall(r'\w+', path.read_text())}


def test_names_in_the_table_of_places_are_in_their_files() -> None:
    rows = re.findall(r'^\| .+? \| (`\w+/.+) \|$', (REPOSITORY / 'docs' / 'architecture.md').read_text(), re.MULTILINE)
    named = [(PATH.search(row), name) for row in rows for name in re.findall(r'`(\w+)`', row)]
    assert len(named) >= 3
    for path, name in named:
        assert path is not None, name
        file = next(package / path[1] for package in PACKAGES if (package / path[1]).is_file())
        assert re.search(rf'\b{name}\b', file.read_text()), name


def test_fields_that_stereo_adds_are_named_where_it_is_described() -> None:
    from lightglue_trt_ros.ros.clouds import MATCH_DTYPE, STEREO_DTYPE
    chapter = (REPOSITORY / 'docs' / 'camera-setups.md').read_text().partition('\n## Stereo\n')[2].partition('\n## ')[0]
    settings = (REPOSITORY / 'config' / 'matcher.yaml').read_text()
    line = re.search('^ *stereo: .*$', settings, re.MULTILINE)
    assert line
    for name in set(STEREO_DTYPE.names or ()) - set(MATCH_DTYPE.names or ()):
        assert f'`{name}`' in chapter, name
        assert re.search(rf'\b{name}\b', line[0]), name


def test_options_and_make_targets_in_the_docs_exist() -> None:
    text = '\n'.join(path.read_text() for path in PAPERS)
    code = '\n'.join(path.read_text() for folder in (*PACKAGES, REPOSITORY / 'benchmarks', REPOSITORY / 'training')
                     for path in folder.rglob('*.py'))
    for option in set(re.findall(r'(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w-])', text)) - OPTIONS_OF_OTHERS:
        assert f"'{option}'" in code or option[2:].replace('-', '_') in names_in_the_code(), option
    measurements = (REPOSITORY / 'benchmarks' / '__main__.py').read_text()
    for name in set(re.findall('python -m benchmarks ([a-z]+)', text)):
        assert f"'{name}'" in measurements, name
    targets = re.findall(r'^([a-z-]+):', (REPOSITORY / 'Makefile').read_text(), re.MULTILINE)
    assert set(re.findall(r'`make ([a-z-]+)|^make ([a-z-]+)', text, re.MULTILINE)) <= {*((name, '') for name in targets),
                                                                                      *(('', name) for name in targets)}


def test_ci_builds_the_pages_and_installs_what_users_install() -> None:
    workflow = (REPOSITORY / '.github' / 'workflows' / 'ci.yml').read_text()
    assert all('make docs' in text for text in (workflow, (REPOSITORY / '.ci' / 'run').read_text()))
    needed = set(re.findall(r"'([\w-]+)'", re.findall(r"'run': \[(.*)\]", (REPOSITORY / 'setup.py').read_text())[0]))
    texts = [workflow, *((REPOSITORY / name).read_text() for name in ('README.md', 'docs/install.md', '.ci/robot'))]
    for text in texts:
        line = re.findall('pip install (?:[-a-z ]+ )?-c (.*)', text.replace('\\\n', ''))[0]
        assert needed <= set(line.split()), line


def test_pages_that_the_code_names_exist() -> None:
    named = {name for package in PACKAGES for path in package.rglob('*') if path.suffix in ('.py', '.json', '.jinja')
             for name in re.findall(r'docs/[\w.-]+\.md(?:#[\w-]+)?', path.read_text())}
    assert named
    for name in named:
        page, _, anchor = name.partition('#')
        assert (REPOSITORY / page).exists(), name
        assert not anchor or anchor in headings(REPOSITORY / page), name


def test_the_word_stereo_selects_the_tests_of_stereo() -> None:
    for path in (REPOSITORY / 'test').rglob('test_*.py'):
        text = path.read_text()
        if re.search(r'^from .* import .*\b(?:Pairing|check_epipolar|StereoScore)\b', text, re.MULTILINE):
            assert 'stereo' in path.name or re.search('def test_.*stereo|mark.stereo', text), path


def test_names_in_docstrings_exist() -> None:
    files = [path for folder in (*PACKAGES, REPOSITORY / 'benchmarks', REPOSITORY / 'training')
             for path in sorted(folder.rglob('*.py'))]
    known = {word for path in files for word in re.findall(r'\w+', re.sub('""".*?"""', '', path.read_text(), flags=re.DOTALL))}
    known |= {path.stem for path in files} | {'json', 'launch', 'onnx', 'py', 'safetensors', 'yaml'}
    for path in files:
        for span in re.findall('`([^`]+)`', ' '.join(re.findall('""".*?"""', path.read_text(), re.DOTALL))):
            if re.fullmatch(r'\w+\.\w+', span):
                assert set(span.split('.')) <= known, f'{path}: {span}'


def test_messages_that_are_quoted_exist() -> None:
    code = '\n'.join(path.read_text() for package in PACKAGES for path in package.rglob('*.py'))
    text = FENCE.sub('', (REPOSITORY / 'docs' / 'troubleshooting.md').read_text())
    messages = [span.strip('`') for span in CODE.findall(text) if not span.startswith(('`ros2 ', '`import ', '`-c '))]
    quoted = [part.strip() for message in messages for part in message.split('…') if ' ' in part.strip()]
    assert len(quoted) >= 8
    assert not [part for part in quoted if part not in code]


def test_every_parameter_and_public_name_has_its_line() -> None:
    text = (REPOSITORY / 'docs' / 'parameters.md').read_text()
    settings = yaml.safe_load((REPOSITORY / 'config' / 'matcher.yaml').read_text())['/**']['ros__parameters']
    assert not [name for name in settings if f'`{name}`' not in text]
    documented = re.findall(r'^::: lightglue_trt_ros\.(\w+)$', (REPOSITORY / 'docs' / 'python.md').read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(lightglue_trt_ros.__all__)


def test_templates_ask_for_diagnostics_and_json_of_evaluate_bag() -> None:
    folder = REPOSITORY / '.github' / 'ISSUE_TEMPLATE'
    for name in ('bug_report', 'feature_request'):
        form = yaml.safe_load((folder / f'{name}.yml').read_text())
        assert form.keys() >= {'name', 'description', 'body'}
        asked = ' '.join(str(part['attributes'].get('description')) for part in form['body'])
        for wanted in ('/diagnostics', 'evaluate_bag BAG', 'report.json'):
            assert wanted in asked, f'{name}: {wanted}'


def test_every_block_runs_or_says_why_not() -> None:
    assert not [block for path in PAPERS for block in blocks(path)
                if block.language in ('bash', 'sh') and not block.runs and len(block.comment.split()) < 3]
    assert len(EXAMPLES) >= 8


# examples

EXAMPLES = {' '.join(block.code.split()): block for path in PAPERS for block in blocks(path) if block.runs}
STARTS = re.compile(r'FrameMatcher\(|cli\.|ros2 run')  # networks, or a command
SHIMS = {  # ros2 run PACKAGE NAME; networks of the recording's size
    'ros2': f'for package in lightglue_trt_ros lightglue_trt_eval; do [[ -e "{REPOSITORY}/$package/cli/$3.py" ]] && break; done\n'
            '[[ $3 != evaluate_bag && $3 != benchmark ]] || set -- "$@" --height 160 --width 240 --max-keypoints 256\n'
            'exec "$PYTHON" -m "$package.cli.$3" "${@:4}"',
    'python3': 'exec "$PYTHON" "$@"'}


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples find: BAG, a recording of four frames, two images, a mask, and the commands."""
    import cv2

    from lightglue_trt_eval.demo.flight import textured_frames
    from lightglue_trt_ros.core.cameras import Intrinsics
    from lightglue_trt_ros.datasets.bag_writer import write_bag
    place = tmp_path_factory.mktemp('examples')
    frames = list(textured_frames(4, 160, 240))
    camera = Intrinsics(240, 160, np.array([[200.0, 0, 120], [0, 200, 80], [0, 0, 1]]), 'plumb_bob', np.zeros(5))
    write_bag(place / 'BAG', ((10**9 + number * 10**8, frame) for number, frame in enumerate(frames)), camera)
    for number, frame in enumerate(frames[:2]):
        cv2.imwrite(str(place / f'frame{number}.png'), frame)
    (place / 'bin').mkdir()
    for name, script in SHIMS.items():
        (place / 'bin' / name).write_text(f'#!/usr/bin/env bash\n{script}\n')
        (place / 'bin' / name).chmod(0o755)
    return place


@pytest.mark.parametrize('block', [
    pytest.param(block, marks=[pytest.mark.networks, pytest.mark.slow] if STARTS.search(block.code) else [],
                 id=f'{block.page}-{block.code.strip().splitlines()[-1][:50]}') for block in EXAMPLES.values()])
def test_an_example_runs(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if block.language == 'bash':
        if '--flavour rtx' in block.code:
            pytest.importorskip('tensorrt_rtx_libs', reason='TensorRT-RTX is not installed')
        environment = {**os.environ, 'PYTHON': sys.executable, 'PYTHONPATH': f'{REPOSITORY}{os.pathsep}{NO_PICTURES}',
                       'PATH': f'{folder / "bin"}{os.pathsep}{os.environ["PATH"]}'}
        done = subprocess.run(['bash', '-euo', 'pipefail', '-c', block.code], cwd=folder, env=environment, capture_output=True,
                              text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return
    monkeypatch.chdir(folder)
    scope: dict[str, object] = {}
    exec(block.code, scope)
    if 'on_matches' in scope:
        scope['on_matches'](cloud())
    if 'print(len(matches)' in block.code:
        assert 'longest track 2' in capsys.readouterr().out


def cloud() -> SimpleNamespace:
    """A cloud of 20 points, as a message has it."""
    from lightglue_trt_ros.core.types import FrameMatches
    from lightglue_trt_ros.ros.clouds import fill_cloud, point_fields
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 480, (20, 2)).astype(np.float32)
    matches = FrameMatches(1.0, 0.9, points, points - 3, np.ones(20, np.float32), np.arange(20, dtype=np.uint32),
                           np.full(20, 2, np.uint32), np.tile(np.eye(2, dtype=np.float32), (20, 1, 1)), np.zeros(20, np.uint8))
    stamp = SimpleNamespace(sec=1, nanosec=0)
    message = SimpleNamespace(header=SimpleNamespace(stamp=stamp), fields=point_fields(lambda **field: SimpleNamespace(**field)),
                              data=_Bytes())
    return fill_cloud(message, matches)


class _Bytes(bytearray):
    """As array.array('B'), which messages hold."""

    def frombytes(self, data: object) -> None:
        self.extend(memoryview(data).cast('B') if not isinstance(data, np.ndarray) else data.tobytes())
