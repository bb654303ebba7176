"""Every error this package raises on purpose. Each message says what happened, with the values, and what to do."""

import traceback


class LightglueTrtError(Exception):
    """Root of the package's errors: catch this one to catch them all."""


class ConfigError(LightglueTrtError):
    """A setting is unknown, of the wrong type, or out of range."""


class WeightsError(LightglueTrtError):
    """Weights are missing, damaged, or not the ones that the registry pins."""


class EngineError(LightglueTrtError):
    """A network could not be exported, built, loaded or run."""


class DeviceMemoryError(EngineError):
    """The GPU's memory is exhausted: what holds it has to let go before the next try."""


class EngineMismatchError(EngineError):
    """A built engine does not belong to this machine or to this configuration."""


class FrameError(LightglueTrtError):
    """One frame cannot be used; it is dropped, and the next good one works."""


class ImageEncodingError(FrameError):
    """An image message cannot be decoded."""


class BagError(LightglueTrtError):
    """A recording cannot be read or written, or lacks what was asked of it."""


class NodeError(LightglueTrtError):
    """A node can do its work no longer: whoever started it may start it anew."""


def in_words(error: BaseException) -> str:
    """Errors made on purpose speak for themselves; the others need their type."""
    return str(error) if isinstance(error, LightglueTrtError) else f'{type(error).__name__}: {error}'


def clear_frames(error: BaseException | None) -> None:
    """Let go of what the frames of an exception, and of those that led to it, hold: engines must not outlive their context."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
