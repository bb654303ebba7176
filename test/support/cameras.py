"""A camera, and coefficients of each distortion model."""

from __future__ import annotations

import numpy as np

K = np.array([[458.654, 0, 367.215], [0, 457.296, 248.375], [0, 0, 1]])
BARREL = [-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05, 0.0]
RATIONAL = [0.2, -0.1, 0.001, -0.0005, 0.02, 0.5, -0.2, 0.01]
FISHEYE = [-0.013, 0.004, -0.002, 0.0004]
