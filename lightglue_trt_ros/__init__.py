"""SuperPoint + LightGlue correspondences for ROS 2: each frame extracted once, matched against its reference.

The names that users import; deeper paths may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = '0.2.0'  # setup.py reads it; a test compares package.xml, CITATION.cff and CHANGELOG.md

if TYPE_CHECKING:
    from .core.cameras import Intrinsics, StereoRig
    from .core.config import MatcherConfig
    from .core.depth import DepthImage, depth_from_image
    from .core.frame_matcher import FrameMatcher
    from .core.masks import Mask, load_mask
    from .core.stereo import RightImage
    from .core.tracks import TrackCounter
    from .engines.selection import open_backend
    from .ros.cloud_reader import matches_from_cloud
    from .utils.errors import BagError, ConfigError, EngineError, FrameError, LightglueTrtError, WeightsError

__all__ = ['BagError', 'ConfigError', 'DepthImage', 'EngineError', 'FrameError', 'FrameMatcher', 'Intrinsics',
           'LightglueTrtError', 'Mask', 'MatcherConfig', 'RightImage', 'StereoRig', 'TrackCounter', 'WeightsError',
           'depth_from_image', 'load_mask', 'matches_from_cloud', 'open_backend']
_PLACES = {'core.config': ['MatcherConfig'], 'core.cameras': ['Intrinsics', 'StereoRig'],
           'core.depth': ['DepthImage', 'depth_from_image'], 'core.stereo': ['RightImage'],
           'core.frame_matcher': ['FrameMatcher'], 'core.masks': ['Mask', 'load_mask'], 'core.tracks': ['TrackCounter'],
           'engines.selection': ['open_backend'], 'ros.cloud_reader': ['matches_from_cloud'],
           'utils.errors': ['BagError', 'ConfigError', 'EngineError', 'FrameError', 'LightglueTrtError', 'WeightsError']}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: a command that needs none of them starts faster (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'.{_MODULES[name]}', __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
