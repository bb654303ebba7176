"""The list of mutants cannot rot: each one's text is in its file, once. `make mutants` runs them."""

from __future__ import annotations

import shlex

import pytest
from mutants import REPOSITORY, Mutant, mutants

MUTANTS = mutants()


@pytest.mark.parametrize('mutant', MUTANTS, ids=lambda mutant: f'{mutant.file}: {mutant.breaks}')
def test_the_text_of_each_mutant_is_in_its_file_once(mutant):
    source = (REPOSITORY / mutant.file).read_text()
    planted = mutant.planted(source)
    assert planted != source
    if mutant.file.endswith('.py'):
        compile(planted, mutant.file, 'exec')
    files = [word for word in shlex.split(mutant.tests) if word.startswith('test/')]
    assert files
    assert all((REPOSITORY / file.partition('::')[0]).is_file() for file in files)


def test_there_are_enough_and_nearly_all_die():
    assert len(MUTANTS) >= 60
    assert sum(bool(mutant.survives) for mutant in MUTANTS) <= 3
    rooms = {path.parent.name for package in ('lightglue_trt_ros', 'lightglue_trt_eval')
             for path in (REPOSITORY / package).glob('*/__init__.py')}
    assert rooms <= {word for mutant in MUTANTS for word in mutant.file.split('/')[1:2]}, 'each room has one'


@pytest.mark.parametrize('source', ['', 'a + b\na + b\n'])
def test_a_text_that_is_not_there_once_is_refused(source):
    with pytest.raises(ValueError, match=r'file\.py has [02] times, not once: a \+ b'):
        Mutant('', 'file.py', 'a + b', 'a - b', '').planted(source)
