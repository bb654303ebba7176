"""Real weights, real photographs and ONNX Runtime sessions for the tests that need them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import pytest

from lightglue_trt_ros.backends.onnxruntime import OnnxRuntimeBackend
from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.types import HostFeatures, Matches, Thresholds
from lightglue_trt_ros.networks.models import Model, load_model
from lightglue_trt_ros.networks.superpoint import superpoint
from lightglue_trt_ros.networks.typed_onnx import IR, OPSET
from lightglue_trt_ros.networks.weights import Weights
from lightglue_trt_ros.utils.errors import WeightsError


@cache
def ours() -> Model:
    """The shipped pair: it is always there."""
    return load_model('ours')


@cache
def light() -> Model:
    """The shipped light model, of four layers: a third of the arithmetic."""
    return load_model('ours_light')


@cache
def magicleap() -> Model:
    try:
        return load_model('magicleap')
    except WeightsError as error:
        pytest.skip(f'the pair magicleap is not here (fetch_weights magicleap): {error}')


def photo(name: str, height: int, width: int) -> np.ndarray:
    """A gray photograph out of scikit-image's wheel, uint8 (height, width)."""
    return _photo(name, height, width).copy()


@cache
def _photo(name: str, height: int, width: int) -> np.ndarray:
    skimage = pytest.importorskip('skimage', reason='scikit-image is not installed: no photograph to test on')
    image = cv2.imread(str(Path(skimage.__file__).parent / 'data' / f'{name}.png'), cv2.IMREAD_GRAYSCALE)
    assert image is not None
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)


def moved(image: np.ndarray, angle: float = 8.0, scale: float = 0.93, shift: tuple[float, float] = (11.0, -7.0)) -> tuple[
        np.ndarray, np.ndarray]:
    """The image under a similarity, and its 3x3 homography from the old pixels to the new."""
    height, width = image.shape
    warp = np.asarray(cv2.getRotationMatrix2D((width / 2, height / 2), angle, scale), float)
    warp[:, 2] += shift
    view = cv2.warpAffine(image, warp, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    return view, np.vstack([warp, [0, 0, 1]])


def session(model: Any) -> onnxruntime.InferenceSession:
    """On the CPU; what spox builds by itself claims a newer format than it has, which old versions refuse."""
    model.ir_version = min(model.ir_version, IR) if model.opset_import[0].version <= OPSET else model.ir_version
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry('session.intra_op.allow_spinning', '0')  # as the package does: cores are for all workers
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=['CPUExecutionProvider'])


def extract(run: onnxruntime.InferenceSession, image: np.ndarray, mask: np.ndarray | None = None) -> HostFeatures:
    return HostFeatures(*run.run(None, {'image': image, 'mask': np.ones_like(image) if mask is None else mask}))


def matcher_feed(reference: HostFeatures, current: HostFeatures, match: float = 0.1, detection: float = 0.0005) -> dict[str, Any]:
    feed = {f'{name}{side}': getattr(features, name) for side, features in enumerate((reference, current))
            for name in ('keypoints', 'descriptors', 'scores')}
    return feed | {'match_threshold': np.array(match, np.float32), 'detection_threshold': np.array(detection, np.float32)}


class Wrapped:
    """A backend that is another one, but for what a class made of this one changes."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Remembered(Wrapped):
    """A backend that does not run again on what it has seen."""

    def __init__(self, backend: OnnxRuntimeBackend) -> None:
        super().__init__(backend)
        self.known = dict[Any, Any]()

    def extract(self, image: np.ndarray) -> HostFeatures:
        features: HostFeatures = self._once('extract', [image], image)
        return features

    def match(self, reference: Any, current: Any, thresholds: Thresholds) -> Matches:
        matches: Matches = self._once('match', [*arrays(reference), *arrays(current)], reference, current, thresholds)
        return matches

    def match_exits(self, reference: Any, current: Any, thresholds: Thresholds) -> Iterator[Matches]:
        return iter(self._once('match_exits', [*arrays(reference), *arrays(current)], reference, current, thresholds))

    def _once(self, name: str, seen: list[np.ndarray], *given: Any) -> Any:
        key = name, repr(given[2:]), hashlib.sha256(b''.join(array.tobytes() for array in seen)).digest()
        if key not in self.known:
            found = getattr(self.inner, name)(*given)
            self.known[key] = list(found) if name == 'match_exits' else found  # of that a generator
        return self.known[key]


def arrays(features: HostFeatures) -> tuple[np.ndarray, ...]:
    return features.keypoints, features.scores, features.descriptors


SMALL = EngineSpec(240, 328, 256)


@cache
def features_of_two_views() -> list[HostFeatures]:
    """Of a photograph, and of the same when the camera has moved; of the size SMALL."""
    image = photo('coffee', SMALL.image_height, SMALL.image_width)
    extractor = session(superpoint(SMALL, ours().extractor))
    return [extract(extractor, image), extract(extractor, moved(image)[0])]


LAYERS = 2


@cache
def shallow() -> Weights:
    """The real network's first two layers with the second's assignment: as good as a whole one for all that is asked here."""
    whole = ours().matcher

    def kept(name: str) -> bool:
        layer = next((int(part) for part in name.split('.') if part.isdigit()), 0)
        return layer < LAYERS if name.startswith(('transformers', 'log_assignment')) else layer < LAYERS - 1

    return replace(whole, tensors={name: tensor for name, tensor in whole.tensors.items() if kept(name)})
