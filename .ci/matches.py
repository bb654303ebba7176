"""The demo's frames through the core: rendered into a bag, matched, and compared with what another environment made of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from lightglue_trt_ros.core.config import MatcherConfig
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.images import gray_of
from lightglue_trt_ros.datasets.bag_writer import write_bag
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.engines.selection import open_backend

FRAMES, SIZE = 8, (240, 320)
RESTART = 4  # frames: points begin where the last frame refined them, so differences of rounding add up from frame to frame
CLOSE_PX, SHARE = 0.1, 0.95  # of the matches, either way, that must stand within so many pixels


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('bag', type=Path, nargs='?')
    parser.add_argument('--render', type=Path, metavar='BAG')
    parser.add_argument('--out', type=Path)
    parser.add_argument('--against', type=Path)
    args = parser.parse_args()
    if args.render:
        from lightglue_trt_eval.demo.flight import Flight
        args.render.parent.mkdir(parents=True, exist_ok=True)
        write_bag(args.render, ((frame.stamp_ns, frame.image) for frame in Flight(frames=FRAMES).render()), force=True)
        return 0
    found = match(args.bag)
    if args.out:
        np.savez(args.out, **found)
        return 0
    with np.load(args.against) as expected:
        return compare(found, dict(expected))


def match(bag: Path) -> dict[str, np.ndarray]:
    """By frame (M, 4): u, v, u_ref, v_ref of its matches."""
    config = MatcherConfig(image_height=SIZE[0], image_width=SIZE[1], max_keypoints=512, backend='onnxruntime')
    backend, why, *_ = open_backend(config)
    print(f'matches: {why}')
    frames, found = FrameMatcher(backend, config), {}
    for position, frame in enumerate(open_recording(bag).frames()):
        if position % RESTART == 0:
            frames.reset('differences of rounding must not add up')
        matches = frames.process(gray_of(frame.load()), frame.stamp_ns * 1e-9)
        if matches is not None:
            found[str(frame.number)] = np.hstack([matches.keypoints, matches.reference_keypoints])
    backend.close()
    return found


def compare(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> int:
    assert found.keys() == expected.keys(), (list(found), list(expected))
    shares = []
    for number, there in expected.items():
        far = np.abs(found[number][:, None] - there[None]).max(axis=2)
        shares.append(min((far.min(axis=axis) < CLOSE_PX).mean() for axis in (0, 1)))
        assert len(there) > 100, f'frame {number} has {len(there)} matches'
    print(f'matches: {len(shares)} frames, the same within {CLOSE_PX} px: {100 * min(shares):.1f} % of the worst frame, '
          f'{100 * float(np.mean(shares)):.1f} % of all')
    return int(min(shares) < SHARE)


if __name__ == '__main__':
    sys.exit(main())
