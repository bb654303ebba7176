"""What TensorRT calls back while it works: its log goes to Python's logging, its progress to whoever asked."""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

Progress = Callable[[str, int, int], None]  # phase, steps done, steps in all

logger = logging.getLogger('lightglue_trt_ros.tensorrt')
_VERBOSE = 5  # under DEBUG: TensorRT writes a hundred thousand lines at this level


@functools.cache
def log_of(module: Any) -> Any:
    """The one ILogger of a TensorRT module: it keeps the first for the whole process. `.errors` holds the latest error texts."""
    severity = module.ILogger.Severity
    levels = {severity.INTERNAL_ERROR: logging.ERROR, severity.ERROR: logging.ERROR, severity.WARNING: logging.WARNING,
              severity.INFO: logging.DEBUG, severity.VERBOSE: _VERBOSE}

    class Log(module.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.errors: deque[str] = deque(maxlen=20)

        def log(self, severity: Any, message: str) -> None:
            level = levels[severity]
            if level == logging.ERROR:
                self.errors.append(message)
            logger.log(level, '%s', message)

    return Log()


def monitor_of(module: Any, progress: Progress) -> Any:
    """An IProgressMonitor that calls `progress`; what that raises stops the build and is kept in `.error`."""

    class Monitor(module.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            module.IProgressMonitor.__init__(self)
            self.error: BaseException | None = None
            self._sizes: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self._sizes[phase_name] = num_steps
            self._tell(phase_name, 0)

        def step_complete(self, phase_name: str, step: int) -> bool:
            self._tell(phase_name, step + 1)
            return self.error is None

        def phase_finish(self, phase_name: str) -> None:
            self._tell(phase_name, self._sizes.get(phase_name, 0))

        def _tell(self, phase: str, step: int) -> None:
            if self.error is None:
                try:
                    progress(phase, step, self._sizes.get(phase, 0))
                except BaseException as error:  # an exception, Ctrl-C too, must not cross TensorRT's frames
                    self.error = error

    return Monitor()
