"""Draw the photographs of docs/images/: python -m tools.pictures demo, propagation, mask, points, page FILE NAME, or picture."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from lightglue_trt_eval.cli.make_mask import main as make_mask
from lightglue_trt_eval.demo.flight import Flight
from lightglue_trt_eval.images.degradation import degraded
from lightglue_trt_eval.report.style import styled
from lightglue_trt_ros import DepthImage, FrameMatcher, MatcherConfig, open_backend
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.drawing import draw_matches
from lightglue_trt_ros.core.types import FrameMatches, UInt8
from lightglue_trt_ros.datasets.bag_writer import write_bag
from tools.figures import IMAGES

BLUE, ORANGE, PAPER = (217, 144, 46), (0, 122, 255), (255, 255, 255)  # BGR
QUALITY = 70
PHONE = 460, 1040  # pixels of a page
BROWSER = ['chromium', '--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--force-device-scale-factor=1.5']


def demo(frames: int = 33, size: tuple[int, int] = (480, 360)) -> None:
    """The debug image of each frame of the demo's flight, as a moving picture."""
    images, every = _match([Flight(frames=frames).frame(number).image for number in range(frames)])
    drawn = [cv2.resize(cv2.cvtColor(draw_matches(image, matches), cv2.COLOR_BGR2RGB), size, interpolation=cv2.INTER_AREA)
             for image, matches in zip(images[1:], every, strict=True)]
    first, *others = map(Image.fromarray, drawn)
    first.save(IMAGES / 'demo.webp', save_all=True, append_images=others, duration=120, loop=0, quality=40, method=6)


def propagation(frames: int = 12) -> None:
    """Two frames of the demo's flight: matched points are dots, propagated ones rings; lines show how they moved."""
    images, (*_, matches) = _match([Flight(frames=frames).frame(number).image for number in range(frames)])
    pair = [cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) for image in images[-2:]]
    for kind, colour in ((matches.carried == 0, BLUE), (matches.carried > 0, ORANGE)):
        for row in np.flatnonzero(kind)[::2]:
            before, now = _pixel(matches.reference_keypoints[row]), _pixel(matches.keypoints[row])
            cv2.circle(pair[0], before, 4, colour, 2 if colour is ORANGE else -1, cv2.LINE_AA)
            cv2.line(pair[1], before, now, colour, 2, cv2.LINE_AA)
            cv2.circle(pair[1], now, 4, colour, 2 if colour is ORANGE else -1, cv2.LINE_AA)
    for number, (text, colour) in enumerate((('matched', BLUE), ('propagated', ORANGE))):
        for edge, ink in ((6, PAPER), (2, colour)):
            cv2.putText(pair[0], text, (14 + 150 * number, 32), cv2.FONT_HERSHEY_SIMPLEX, 0.9, ink, edge, cv2.LINE_AA)
    save(np.vstack([pair[0], np.full((8, *pair[0].shape[1:]), 255, np.uint8), pair[1]]), 'propagation.webp')


def points(frames: int = 12) -> None:
    """A frame of the demo's flight with its points, and the same points in metres, seen from above; both by track length."""
    flight = Flight(frames=frames)
    camera = Intrinsics(flight.width, flight.height, flight.intrinsics, 'plumb_bob', np.zeros(5))
    rendered = [flight.frame(number) for number in range(frames)]
    depths = [DepthImage(frame.depth, 1.0, camera) for frame in rendered]
    images, (*_, matches) = _match([frame.image for frame in rendered], depths)
    assert matches.xyz is not None
    with styled():
        figure, (upper, lower) = plt.subplots(2, 1, figsize=(6, 9.4), height_ratios=(1, 1))
        upper.imshow(images[-1], cmap='gray')
        upper.scatter(*matches.keypoints.T, c=matches.track_lengths, s=14, cmap='viridis')
        upper.set_axis_off()
        drawn = lower.scatter(matches.xyz[:, 0], matches.xyz[:, 2], c=matches.track_lengths, s=16, cmap='viridis')
        lower.plot(0, 0, '^', color='#d55e00', ms=14)
        lower.annotate('camera', (0, 0), (12, 6), textcoords='offset points')
        lower.set_aspect('equal', adjustable='datalim')
        lower.set_title('The same points from above, metres')
        figure.colorbar(drawn, ax=lower, orientation='horizontal', label='track length, frames', pad=0.12, aspect=30)
        figure.tight_layout()
        with tempfile.TemporaryDirectory() as folder:
            figure.savefig(Path(folder) / 'points.png', dpi=130)
            picture(Path(folder) / 'points.png', 'points.webp')


def _match(images: list[UInt8], depths: Sequence[DepthImage | None] = ()) -> tuple[list[UInt8], list[FrameMatches]]:
    """The images, and the matches of each but the first."""
    config = MatcherConfig(backend='onnxruntime', image_height=480, image_width=640)
    backend, *_ = open_backend(config)
    try:
        matcher = FrameMatcher(backend, config)
        of_frames = depths or [None] * len(images)
        matches = [matcher.process(image, 0.1 * number, depth=depth)
                   for number, (image, depth) in enumerate(zip(images, of_frames, strict=True))]
    finally:
        backend.close()
    return images, [each for each in matches if each is not None]


def mask(frames: int = 48) -> None:
    """What `make_mask` finds in the demo's flight with a bonnet and burnt-in text, red over a frame."""
    flight = Flight(frames=frames)
    images = (degraded(degraded(frame.image, 'bonnet', number=number), 'text', number=number)
              for number, frame in enumerate(flight.render()))
    camera = Intrinsics(flight.width, flight.height, flight.intrinsics, 'plumb_bob', np.zeros(5))
    with tempfile.TemporaryDirectory() as folder:
        write_bag(Path(folder) / 'bag', ((10**9 + number * 10**8, image) for number, image in enumerate(images)), camera)
        make_mask([f'{folder}/bag', '--out', f'{folder}/body.png'])
        picture(Path(folder) / 'body_over_frame.png', 'mask.webp')


def _pixel(point: Any) -> tuple[int, int]:
    return round(float(point[0])), round(float(point[1]))


def page(file: Path, name: str) -> None:
    """The head of an HTML page as a telephone shows it."""
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / 'page.png'
        subprocess.run([*BROWSER, f'--window-size={PHONE[0]},{PHONE[1]}', f'--screenshot={shot}', file.resolve().as_uri()],
                       check=True, capture_output=True)
        save(cv2.imread(str(shot)), name)


def picture(file: Path, name: str, width: int = 960) -> None:
    """A picture that another command made, at most `width` pixels wide."""
    image: Any = cv2.imread(str(file))
    if image.shape[1] > width:
        image = cv2.resize(image, (width, round(image.shape[0] * width / image.shape[1])), interpolation=cv2.INTER_AREA)
    save(image, name)


def save(image: Any, name: str) -> None:
    cv2.imwrite(str(IMAGES / name), image, [cv2.IMWRITE_WEBP_QUALITY, QUALITY])


def main(argv: list[str] | None = None) -> int:
    """Exit code 0."""
    parser = argparse.ArgumentParser(prog='python -m tools.pictures', description=__doc__)
    parser.add_argument('kind', choices=('demo', 'propagation', 'mask', 'points', 'page', 'picture'))
    parser.add_argument('file', nargs='?', type=Path, help='an HTML page, or a picture')
    parser.add_argument('name', nargs='?', help='of the file in docs/images/')
    args = parser.parse_args(argv)
    if args.kind in ('demo', 'propagation', 'mask', 'points'):
        {'demo': demo, 'propagation': propagation, 'mask': mask, 'points': points}[args.kind]()
    elif args.name is None:
        parser.error(f'{args.kind} takes a FILE and a NAME')
    else:
        {'page': page, 'picture': picture}[args.kind](args.file, args.name)
    return 0


if __name__ == '__main__':
    sys.exit(main())
