"""Contact sheets, to look at what was taken."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

COLUMNS, ROWS = 12, 8
THUMBNAIL = (160, 120)
CAPTION = 12  # pixels


def write_sheets(items: list[tuple[str, bytes]], folder: Path) -> list[Path]:
    """PNG sheets of 96 thumbnails each, with the end of each name under it, in the order given."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for start in range(0, len(items), COLUMNS * ROWS):
        sheet: NDArray[np.uint8] = np.zeros((ROWS * (THUMBNAIL[1] + CAPTION), COLUMNS * THUMBNAIL[0]), np.uint8)
        for place, (name, data) in enumerate(items[start : start + COLUMNS * ROWS]):
            y, x = place // COLUMNS * (THUMBNAIL[1] + CAPTION), place % COLUMNS * THUMBNAIL[0]
            gray = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
            assert gray is not None
            sheet[y : y + THUMBNAIL[1], x : x + THUMBNAIL[0]] = cv2.resize(gray, THUMBNAIL, interpolation=cv2.INTER_AREA)
            caption = name.removesuffix('.jpg')[-26:]
            cv2.putText(sheet, caption, (x + 1, y + THUMBNAIL[1] + 9), cv2.FONT_HERSHEY_SIMPLEX, 0.32, 255, 1, cv2.LINE_AA)
        path = folder / f'sheet.{len(written):03d}.png'
        cv2.imwrite(str(path), sheet)
        written.append(path)
    return written
