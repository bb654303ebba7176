"""Every error that this package raises on purpose. Each message has the cause, the values, and what to do."""

import difflib
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path


class LightglueTrtError(Exception):
    """Root of the package's errors: catch this one to catch them all.

    The message is `reason` and `remedy`; who acts by itself logs the reason without the remedy.
    """

    def __init__(self, reason: str = '', remedy: str = '') -> None:
        super().__init__(reason + remedy)
        self.reason = reason


class ConfigError(LightglueTrtError):
    """A setting is unknown, of the wrong type, or out of range."""


class WeightsError(LightglueTrtError):
    """Weights are missing, damaged, or not the ones that the registry pins."""


class EngineError(LightglueTrtError):
    """A network could not be exported, built, loaded or run."""


class DeviceMemoryError(EngineError):
    """The GPU's memory is exhausted: free it before the next try."""


class EngineMismatchError(EngineError):
    """A built engine does not belong to this machine or to this configuration."""


class FrameError(LightglueTrtError):
    """One frame cannot be used; it is dropped, and the next good one works."""


class ImageEncodingError(FrameError):
    """An image message cannot be decoded."""


class BagError(LightglueTrtError):
    """A recording cannot be read or written, or lacks the data that were asked for."""


class NodeError(LightglueTrtError):
    """A node cannot go on: its launcher may start it again."""


@contextmanager
def naming(place: Path | str) -> Iterator[None]:
    """Errors in the block become a BagError that names the place."""
    try:
        yield
    except (ValueError, BagError) as error:
        raise BagError(f'{place}: {error}') from None


def first_of(names: Collection[object], most: int) -> str:
    """The first `most` of some names for a message, and how many there are if these are not all."""
    return ', '.join(map(str, islice(names, most))) + f' … ({len(names)} in all)' * (len(names) > most)


def did_you_mean(name: str, known: Collection[str], similarity: float = 0.6) -> str:
    """The question with the known name that is most like an unknown one; empty where none is so similar."""
    return ''.join(f'did you mean {near}?' for near in difflib.get_close_matches(name, known, 1, similarity))


def in_words(error: BaseException) -> str:
    """The message of an error of this package; any other error with its type."""
    return str(error) if isinstance(error, LightglueTrtError) else f'{type(error).__name__}: {error}'


def clear_frames(error: BaseException | None) -> None:
    """Clear the frames of an exception and of its causes: their variables keep engines alive after the CUDA context."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
