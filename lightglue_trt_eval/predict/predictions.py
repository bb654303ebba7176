"""What methods find on a recording, kept in a folder: a file for each method, frame by frame, and an index of them all."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightglue_trt_ros.core.depth import Positions
from lightglue_trt_ros.core.types import FrameMatches
from lightglue_trt_ros.utils.errors import LightglueTrtError

from ..baselines import MatchedPoints
from .scene import Measured

INDEX = 'index.pickle'
READ = {('numpy', each) for each in ('dtype', 'ndarray', '_frombuffer', '_reconstruct', 'scalar')} | {
    ('lightglue_trt_eval', each) for each in ('FramePredictions', 'Prediction', 'MatchedPoints', 'Predicted', 'Measured', 'Motion')
} | {('lightglue_trt_ros', each) for each in ('FrameMatches', 'Positions', 'Standing')}


class Prediction(NamedTuple):
    """The correspondences of a frame with the one before."""

    points: MatchedPoints  # pixels of the reference and of the current image
    layers: int | None = None  # of LightGlue that ran
    rows: NDArray[np.int32] | None = None  # (M, 2) of the features of both images that match
    tracked: MatchedPoints | None = None  # matched and propagated points, if tracks have both
    published: FrameMatches | None = None  # as the node publishes them, for the figures of depth and stereo


class FramePredictions(NamedTuple):
    """The predictions of one method for a frame."""

    frame: int  # in the timeline
    references: dict[int, int]  # frame before by stride, where there is one
    by_stride: dict[int, Prediction]
    backward: MatchedPoints | None = None  # of stride 1, from the frame to its reference, where that was asked for
    reference_depth: Positions | None = None  # of the published points, by the depth image of the reference

    def without_published(self) -> FramePredictions:
        """The same in less room."""
        return self._replace(by_stride={stride: each._replace(published=None) for stride, each in self.by_stride.items()})


@dataclass
class Predicted:
    """A method, its times, and the file of its predictions."""

    name: str
    description: str
    ours: bool
    engine: dict[str, Any] | None = None
    networks: str = ''  # the first method that uses the same features; empty: nobody else does
    stage_ms: dict[str, list[float]] = field(default_factory=dict)  # of timed frames, by stage; 'frame' is all of it
    cost_ms: dict[str, list[float]] = field(default_factory=dict)  # of timed frames: cpu_ms, over all threads, and gpu_ms


@dataclass
class Predictions:
    """The predictions of all methods, ours first, in the files of a folder."""

    folder: Path
    made_with: dict[str, str] = field(default_factory=dict)  # what predictions depend on, by name
    methods: list[Predicted] = field(default_factory=list)
    measured: Measured = field(default_factory=Measured)  # of the scene, which takes images
    covered: int = 0  # frames that all of the methods of the last pass have seen
    interrupted: bool = False
    failure: str = ''  # why the last pass ended early
    notes: list[str] = field(default_factory=list)

    def file(self, name: str, mode: str) -> IO[bytes]:
        """The file of a method's predictions."""
        return (self.folder / f'{sha256(name.encode()).hexdigest()}.pickle').open(mode)  # a name may have any letter

    def of(self, method: Predicted) -> Iterator[FramePredictions]:
        """The predictions of a method, frame by frame."""
        with self.file(method.name, 'rb') as file:
            yield from all_of(file)

    def write_index(self) -> None:
        """Keep all but the files. Raises LightglueTrtError on a full disk."""
        with (self.folder / INDEX).open('wb') as file:
            keep(vars(self) | {'folder': None}, file)

    @classmethod
    def read(cls, folder: Path, made_with: dict[str, str]) -> Predictions:
        """Those that an earlier run kept in `folder`. Raises LightglueTrtError where there are none, or of something else."""
        try:
            with (folder / INDEX).open('rb') as file:
                found = cls(**{**_Reader(file).load(), 'folder': folder})
        except (OSError, pickle.UnpicklingError, EOFError, TypeError, AttributeError, ImportError) as error:
            raise LightglueTrtError(f'{folder} has no predictions that can be read ({error}): run with --predictions keep first'
                                    ) from None
        if others := [name for name, value in made_with.items() if found.made_with.get(name) != value]:
            raise LightglueTrtError(f'the predictions in {folder} were made with another {", ".join(others)}: give the same, or '
                                    'run with --predictions keep again')
        return found


class _Reader(pickle.Unpickler):
    """Reads data and nothing else: a file that somebody else wrote runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.partition('.')[0], name) not in READ:
            raise pickle.UnpicklingError(f'{module}.{name} is no part of predictions')
        return super().find_class(module, name)


def keep(item: Any, file: IO[bytes]) -> None:
    """Append an item to a file. Raises LightglueTrtError on a full disk."""
    try:
        pickle.dump(item, file, pickle.HIGHEST_PROTOCOL)
        file.flush()
    except OSError as error:
        raise LightglueTrtError(f'predictions cannot be kept: {error.strerror or error}; make room, or choose another --out'
                                ) from error


def all_of(file: IO[bytes]) -> Iterator[Any]:
    """The items of a file, from where it stands."""
    while True:
        try:
            yield _Reader(file).load()
        except EOFError:
            return
