"""Filters of photographs for training. Each filter returns why it refuses an image, in one line, or None."""

from __future__ import annotations

import re
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

SHORT_SIDE = 512  # pixels, of the original
LONGEST_ASPECT = 3.2  # panoramas and strips beyond it have too little to crop
CONTRAST = 14.0  # standard deviation of gray levels
SHARPNESS = 60.0  # variance of the Laplacian at the packed size
BLOCK = 8  # side of the blocks whose texture is judged
FLAT_DEVIATION = 1.2  # gray levels within a block: paper, vector art and blurred skies lie under it
POOR_DEVIATION = 3.0  # photographs of walls lie over it
FLAT_SHARE = 0.42
POOR_SHARE = 0.68
ONE_TONE_SHARE = 0.5  # a page's paper, a screen's background
COLOURS = 90  # distinct colours at 5 bits a channel in a reduced image; gray ones have at most 32 and are not judged
CLEAR_SHARE = 0.02  # transparent pixels: a sprite
SADDLE = 320.0  # response of the ring test: 4 x 80 gray levels
BOARD = 24  # saddle corners
HASH_BITS = 8  # near-duplicates differ by at most this many of 64

# Layers of materials and pieces of user interfaces, by the names that games give them.
_NAMES = re.compile(
    r'(^|[/_.\-\s])(n|nm|nrm|nor|norm|normal|normals|normalmap|normap|bump|bumps|spec|specular|specmap|s|gloss|glow|height|heightmap|hm|disp|'
    r'displacement|mask|masks|alpha|ao|occlusion|rough|roughness|metal|metallic|metalness|emission|emissive|lightmap|lightmaps|shadow|shadows|'
    r'shadowmap|icon|icons|gui|ui|font|fonts|logo|logos|cursor|cursors|sprite|sprites|atlas|minimap|minimaps|flag|flags|hud|button|buttons|'
    r'particle|particles|smoke|explosion|screenshot|screenshots|thumbnail|thumbnails|preview|envmap|skybox|sky|skies|crosshair|crosshairs|'
    r'chessboard|checkerboard|calib|calibration|loadingscreen|levelshots|splash|splashes|splatt|karticon|text|depth|disparity)'
    r'[0-9]*([/_.\-\s]|$)',
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Measure:
    """Measurements of one packed crop, for the filters."""

    contrast: float
    sharpness: float
    flat: float  # share of blocks without any texture
    poor: float  # share of blocks with hardly any
    one_tone: float  # share of pixels within two gray levels of the commonest
    saddles: int  # corners like a chessboard's


def refuse_name(member: str) -> str | None:
    """Layers of materials (normals, specular, height, masks), user interfaces, fonts, previews, calibration boards; by name."""
    found = _NAMES.search(member)
    return f'a layer of a material or a piece of an interface by its name ({found.group(2).lower()})' if found else None


def refuse_size(height: int, width: int) -> str | None:
    """Images too small to be packed without blowing them up, and strips."""
    if min(height, width) < SHORT_SIDE:
        return f'tiny: {width}x{height}, the short side is under {SHORT_SIDE}'
    if max(height, width) > LONGEST_ASPECT * min(height, width):
        return f'a strip: {width}x{height}'
    return None


def refuse_alpha(image: NDArray[np.uint8]) -> str | None:
    """Sprites and cut-outs (H, W, 4). A channel that is transparent all over holds something else, and is passed over."""
    if image.ndim != 3 or image.shape[2] != 4:
        return None
    clear = float((image[..., 3] < 16).mean())
    return f'a sprite: {clear:.0%} is transparent' if CLEAR_SHARE < clear < 0.98 else None


def refuse_colours(image: NDArray[np.uint8]) -> str | None:
    """Normal maps and drawings of few colours, by the colours of (H, W, 3) BGR; gray images pass."""
    if image.ndim != 3:
        return None
    small = cv2.resize(image[..., :3], (160, 120), interpolation=cv2.INTER_AREA).reshape(-1, 3).astype(np.int32)
    if int(np.ptp(small, axis=1).max()) <= 12:
        return None
    blue, green, red = small.mean(axis=0)
    if blue > 165 and abs(red - 128) < 28 and abs(green - 128) < 28:
        return f'a normal map: mean colour ({red:.0f}, {green:.0f}, {blue:.0f})'
    bits = small >> 3
    colours = np.unique(bits[:, 0] << 10 | bits[:, 1] << 5 | bits[:, 2]).size
    if colours < COLOURS and float(np.ptp(small, axis=1).mean()) > 40:
        return f'a drawing: {colours} distinct colours'
    return None


def saddles(gray: NDArray[np.uint8]) -> int:
    """How many strong saddle corners, as of a chessboard, are seen: the ring test of Bennett and Lasenby, ChESS (2014)."""
    small = cv2.resize(gray, (400, 300), interpolation=cv2.INTER_AREA).astype(np.float32)
    angles = np.arange(16) * (np.pi / 8)
    shifts = np.stack([np.rint(5 * np.sin(angles)), np.rint(5 * np.cos(angles))], axis=1).astype(int)
    high, wide = small.shape
    ring = np.stack([small[5 + y : high - 5 + y, 5 + x : wide - 5 + x] for y, x in shifts])
    across = np.abs(ring[:4] + ring[8:12] - ring[4:8] - ring[12:16]).sum(axis=0)
    along = np.abs(ring[:8] - ring[8:]).sum(axis=0)
    centre = cv2.blur(small, (3, 3))[5:-5, 5:-5]
    response = across - along - 16 * np.abs(ring.mean(axis=0) - centre)
    peaks = (response > SADDLE) & (response >= cv2.dilate(response, np.ones((9, 9), np.uint8)))
    return int(peaks.sum())


def measure(gray: NDArray[np.uint8]) -> Measure:
    """The measures of one gray crop (H, W) of the packed size."""
    height, width = (side - side % BLOCK for side in gray.shape)
    blocks = gray[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK).astype(np.float32)
    deviation = blocks.std(axis=(1, 3))
    histogram = np.bincount(gray.ravel(), minlength=256).astype(np.float64)
    tones = np.convolve(histogram, np.ones(5), mode='same').max() / gray.size
    return Measure(
        contrast=float(gray.std()),
        sharpness=float(cv2.Laplacian(gray, cv2.CV_32F).var()),
        flat=float((deviation < FLAT_DEVIATION).mean()),
        poor=float((deviation < POOR_DEVIATION).mean()),
        one_tone=float(tones),
        saddles=saddles(gray),
    )


def refuse_measure(found: Measure, contrast: float = CONTRAST) -> str | None:
    """Flat, blurred, empty and drawn images, pages of text, and calibration boards. `contrast` may ask for more than the least."""
    if found.contrast < max(contrast, CONTRAST):
        return f'flat: gray levels deviate by {found.contrast:.1f}, under {max(contrast, CONTRAST):g}'
    if found.one_tone > ONE_TONE_SHARE:
        return f'a page or a drawing: {found.one_tone:.0%} is of one tone'
    if found.flat > FLAT_SHARE:
        return f'constant areas: {found.flat:.0%} of the image, over {FLAT_SHARE:.0%}'
    if found.poor > POOR_SHARE:
        return f'hardly any texture on {found.poor:.0%} of the image, over {POOR_SHARE:.0%}'
    if found.sharpness < SHARPNESS:
        return f'blurred: variance of the Laplacian is {found.sharpness:.0f}, under {SHARPNESS:g}'
    if found.saddles >= BOARD:
        return f'a calibration board: {found.saddles} saddle corners'
    return None


def perceptual_hash(gray: NDArray[np.uint8]) -> int:
    """64 bits of the signs of the lowest frequencies (a DCT of 32x32), without the mean; alike for the same picture at any size."""
    small = cv2.resize(gray, (32, 32), interpolation=cv2.INTER_AREA).astype(np.float32)
    low = cv2.dct(small)[:8, :8].ravel()
    bits = low > np.median(low[1:])
    return int(np.packbits(bits).view('>u8')[0])


def hashes_of(gray: NDArray[np.uint8]) -> tuple[int, ...]:
    """Hashes of an image (H, W) and of its central cuts to 4:3 and 1:1: the same wallpaper at another aspect shares one of them."""
    height, width = gray.shape
    found = [perceptual_hash(gray)]
    for aspect in (4 / 3, 1.0):
        wide, high = min(width, round(height * aspect)), min(height, round(width / aspect))
        top, left = (height - high) // 2, (width - wide) // 2
        found.append(perceptual_hash(np.ascontiguousarray(gray[top : top + high, left : left + wide])))
    return tuple(found)


class Seen:
    """The images that were kept so far, to refuse those that look the same."""

    def __init__(self) -> None:
        self._hashes = np.zeros(0, np.uint64)
        self._owners: list[str] = []

    def refuse(self, hashes: tuple[int, ...]) -> str | None:
        """Why an image is a near-duplicate of one kept."""
        if not self._owners:
            return None
        for one in hashes:
            differing = np.unpackbits((self._hashes ^ np.uint64(one)).view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1)
            nearest = int(differing.argmin())
            if differing[nearest] <= HASH_BITS:
                return f'looks like {self._owners[nearest]}'
        return None

    def keep(self, hashes: tuple[int, ...], owner: str) -> None:
        """Remember an image that is kept."""
        self._hashes = np.concatenate([self._hashes, np.array(hashes, np.uint64)])
        self._owners += [owner] * len(hashes)
