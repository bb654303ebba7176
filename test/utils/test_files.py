"""Files appear whole or not at all, and one at a time writes them."""

from __future__ import annotations

import subprocess
import sys
import threading

from lightglue_trt_ros.utils.files import locked

LIMITED = '''
import resource, signal, sys
from pathlib import Path
from lightglue_trt_ros.utils.files import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_whole(Path(sys.argv[1]), bytes(2000))
except OSError:
    sys.exit(3)
'''


def test_failed_write_keeps_the_previous_file_and_leaves_no_other(tmp_path):
    path = tmp_path / 'weights'
    path.write_bytes(b'before')
    assert subprocess.run([sys.executable, '-c', LIMITED, path]).returncode == 3
    assert path.read_bytes() == b'before'
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_is_waited_for(tmp_path):
    waits, holds = threading.Event(), threading.Event()

    def work() -> None:
        with locked(tmp_path / 'lock', waits.set):
            holds.set()

    thread = threading.Thread(target=work)
    with locked(tmp_path / 'lock', lambda: None):
        thread.start()
        assert waits.wait(10)
        assert not holds.wait(0.2)
    thread.join(10)
    assert holds.is_set()
