"""How the tests themselves run: DDS domains of their own, and an end for each."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.domains import BASE, GAIN, UNICAST, claim_domain

ROOT = Path(__file__).parents[2]


def test_two_runs_never_have_one_domain() -> None:
    first, claim = claim_domain(40)
    with claim:
        other, second = claim_domain(first - 1)  # which starts at the first's
        second.close()
        assert other != first
    again, claim = claim_domain(first - 1)
    claim.close()
    assert again == first


def test_a_domain_with_a_participant_is_passed_over() -> None:
    domain, claim = claim_domain(60)
    claim.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
        participant.bind(('', BASE + GAIN * domain + UNICAST))
        other, claim = claim_domain(domain - 1)
        claim.close()
    assert other != domain


@pytest.mark.skipif(int(pytest.__version__.split('.')[0]) < 9, reason='pytest before 9 prints the stack alone')
def test_a_test_that_hangs_is_ended_with_its_stack(tmp_path: Path) -> None:
    (tmp_path / 'test_hangs.py').write_text('import time\n\n\ndef test_hangs():\n    time.sleep(100)\n')
    words = ['-c', str(ROOT / 'pyproject.toml'), '--rootdir', str(tmp_path), '-p', 'no:cacheprovider',
             '-o', 'faulthandler_timeout=1']
    command = [sys.executable, '-m', 'pytest', *words, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert 'Timeout' in done.stdout + done.stderr
    assert 'in test_hangs' in done.stdout + done.stderr


def test_tests_run_without_xdist() -> None:
    command = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:xdist', '-p', 'no:cacheprovider', '--collect-only', __file__]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
