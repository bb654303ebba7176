"""evaluate_bag in a process of its own: `python -m` this module `THREADS RECORDING --out FOLDER ...`.

A crash of a decoder, or memory that runs out, costs that recording and not the worker; and the process ends when its worker does.
"""

from __future__ import annotations

import runpy
import sys

import cv2

from ...utils.processes import end_with_parent


def main() -> None:
    """Take the number of OpenCV's threads off the arguments; the rest is evaluate_bag's."""
    end_with_parent()
    cv2.setNumThreads(int(sys.argv.pop(1)))
    runpy.run_module('lightglue_trt_ros.cli.evaluate_bag', run_name='__main__')


if __name__ == '__main__':
    main()
