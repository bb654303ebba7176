"""What an evaluation holds does not grow with the recording: images, features, and the arena in which the networks work."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from support.networks import Wrapped, photo
from support.scored import scored

from lightglue_trt_eval.options import variants
from lightglue_trt_eval.predict import methods
from lightglue_trt_eval.predict.frames import Frames
from lightglue_trt_eval.predict.methods import Baseline, OurMethod
from lightglue_trt_eval.predict.scene import Scene, Timeline
from lightglue_trt_eval.predict.shared_networks import SharedNetworks
from lightglue_trt_ros.core import frame_matcher
from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.refinement import Pyramid
from lightglue_trt_ros.core.types import HostFeatures, Thresholds
from lightglue_trt_ros.datasets.sequence import Frame
from lightglue_trt_ros.engines.selection import open_backend

pytest.importorskip('onnxruntime', reason='the networks run in ONNX Runtime')

pytestmark = pytest.mark.networks

HEIGHT, WIDTH, COUNT = 96, 128, 40
CONFIG = MatcherConfig(backend='onnxruntime', weights='ours_light', image_height=HEIGHT, image_width=WIDTH, max_keypoints=64)
STRIDES = (1, 2, 4)


class Alive:
    """Counts what is there of what it has seen, and the most at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def see(self, item: Any) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        weakref.finalize(item, self._gone)
        return item

    def _gone(self) -> None:
        self.now -= 1


def frames() -> Iterator[Frame]:
    """A camera that goes to and fro over a photograph, each frame an array of its own once it is loaded."""
    scene = photo('coffee', 2 * HEIGHT, 3 * WIDTH)
    for k in range(COUNT):
        u = 20 + 3 * abs(k % 20 - 10)
        yield Frame(k * 10**8, k * 10**8, lambda u=u: scene[40:40 + HEIGHT, u:u + WIDTH], number=k)


class CountingBackend(Wrapped):
    """A backend whose features are counted."""

    def __init__(self, inner: Any, features: Alive) -> None:
        super().__init__(inner)
        self.features = features

    def extract(self, *given: Any) -> Any:
        return self.features.see(self.inner.extract(*given))


def test_images_and_features_that_are_held_do_not_grow_with_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    images, features, pyramids = Alive(), Alive(), Alive()

    class CountedPyramid(Pyramid):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            pyramids.see(self)

    for module in (frame_matcher, methods):
        monkeypatch.setattr(module, 'Pyramid', CountedPyramid)
    wanted = variants(CONFIG, ['refinement=patches', 'max_sigma_px=0.5'])
    networks = SharedNetworks(CountingBackend(open_backend(CONFIG).backend, features), wanted.values())
    ours = [OurMethod(name, networks, config) for name, config in wanted.items()]
    everybody = [*ours, Baseline('orb', 64), Baseline('klt', 64)]
    with closing(networks):
        scene = Scene(Timeline.of(frames(), 1.0))
        found, _ = scored(everybody, Frames(frames, lambda image: images.see(image.copy()), scene), STRIDES)
    assert [result.count() for result in found] == [COUNT - 1] * 4
    assert images.most <= 2 + max(STRIDES) < COUNT / 2, 'those that are matched, and matched with'
    assert 0 < features.most <= len(STRIDES) + 3
    streams = len(STRIDES) + 1  # and one for the way back
    assert 0 < pyramids.most <= streams * len(ours) + 2 * len(everybody), 'each stream of ours has one, baselines keep none'


def test_what_the_backend_gives_holds_nothing_of_its_arena() -> None:
    """A view of a kilobyte would keep a block of an image's size from being used again: 75 MiB at 1008x304."""
    with closing(open_backend(CONFIG).backend) as backend:
        features = [backend.extract(next(frames()).load()) for _ in range(2)]
        matches = backend.match(features[0], features[1], Thresholds())
        assert all(isinstance(each, HostFeatures) for each in features)
        given = [array for each in (*features, matches) for array in vars(each).values() if isinstance(array, np.ndarray)]
        assert len(given) == 8
        assert all(array.flags.owndata for array in given)
