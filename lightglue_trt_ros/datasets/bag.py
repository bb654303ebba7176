"""The recordings' door for scripts, which import from here; each name has its home in another file."""

from __future__ import annotations

from .bag_recording import BagRecording
from .recordings import gray_images, open_recording
from .stereo_and_depth import DEPTH_SKEW_NS, StereoRecording, depth_of, paired, right_of, stereo_recording, with_nearest

__all__ = ['DEPTH_SKEW_NS', 'BagRecording', 'StereoRecording', 'depth_of', 'gray_images', 'open_recording', 'paired', 'right_of',
           'stereo_recording', 'with_nearest']
