"""Poses with times in JSON: data.jsonl of Spectacular AI, and ego_pose.json and poses of the CAN bus of nuScenes."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..utils.errors import BagError, naming
from ..utils.files import text_of
from .pose_files import trajectory_of
from .poses import Trajectory, poses_from
from .stamps import parse_stamp, rows_of

_OF_NUSCENES = ('timestamp', 'translation', 'rotation', 'token'), ('utime', 'pos', 'orientation', 'rotation_rate')  # it has more


def read_spectacular(path: Path) -> Trajectory:
    """Spectacular AI's data.jsonl: groundTruth has poses, world from device. Raises BagError that names the line."""
    def row(line: str) -> tuple[int, list[float]] | None:
        try:
            entry = json.loads(line) if 'groundTruth' in line else {}
            pose = entry.get('groundTruth', {})
            if 'orientation' not in pose:  # a sensor's line, or a position alone
                return None
            return parse_stamp(str(entry['time'])), [float(pose[part][axis]) for part, axes in (
                ('position', 'xyz'), ('orientation', 'xyzw')) for axis in axes]
        except KeyError as error:
            raise ValueError(f'it has no {error.args[0]}, and groundTruth needs time, position and orientation') from None
        except (AttributeError, TypeError) as error:
            raise ValueError(f'its groundTruth is broken ({error})') from None

    with naming(path):
        text = text_of(path)
    rows = [each for each in rows_of(path, enumerate(text.splitlines(), 1), row) if each is not None]
    if not rows:
        raise BagError(f'{path} has no groundTruth with position and orientation, as data.jsonl of Spectacular AI may have: name a '
                       'file of poses')
    table = np.array([values for _, values in rows])
    with naming(path):
        poses = poses_from(table[:, :3], table[:, 3:])
    return trajectory_of(path, 'Spectacular AI, of its device', [stamp for stamp, _ in rows], poses)


def read_nuscenes(path: Path) -> Trajectory | None:
    """Poses of the car, world from car, with microseconds and w first, of all scenes; None of another file. Raises BagError."""
    entries: Any = None
    with suppress(OSError, RecursionError, ValueError):  # others name these
        entries = json.loads(text_of(path))
    first = entries[0] if isinstance(entries, list) and entries and isinstance(entries[0], dict) else {}
    names = next((names for names in _OF_NUSCENES if first.keys() >= set(names)), None)
    if names is None:
        return None
    with naming(path):
        try:
            rows = [[entry[name] for name in names[:3]] for entry in entries]
            stamps = [parse_stamp(str(time), 10**3) for time, _, _ in rows]
            poses = poses_from([position for _, position, _ in rows], [[*axis, w] for _, _, (w, *axis) in rows])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f'each entry of nuScenes has {", ".join(names[:3])}, and one is broken ({error})') from None
    return trajectory_of(path, 'nuScenes, of the car', stamps, poses)
