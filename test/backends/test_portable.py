"""FP16 in the kernels as plain C++: every value, and every place where rounding changes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from support.emulated_kernels import library_of

SOURCE = '''#include "portable.h"
KERNEL widen_all(const half *narrow, float *wide, int count) { for (int i = 0; i < count; i++) wide[i] = float_of(narrow[i]); }
KERNEL narrow_all(const float *wide, half *narrow, int count) { for (int i = 0; i < count; i++) narrow[i] = half_of(wide[i]); }
'''
HALVES = np.arange(2**16, dtype=np.uint16)


@pytest.fixture(scope='module')
def converted(tmp_path_factory):
    """A function that applies a kernel of SOURCE to an array."""
    source = tmp_path_factory.mktemp('portable') / 'conversions.cu'
    source.write_text(SOURCE)
    library = library_of(source)

    def convert(kernel: str, values: np.ndarray, to: type) -> np.ndarray:
        found = np.zeros(len(values), to)
        getattr(library, kernel)(*(ctypes.c_void_p(each.ctypes.data) for each in (values, found)), len(values))
        return found
    return convert


def test_each_half_is_widened_exactly(converted):
    np.testing.assert_array_equal(converted('widen_all', HALVES, np.float32), HALVES.view(np.float16).astype(np.float32))


def test_floats_are_rounded_to_the_nearest_half_and_ties_to_even(converted):
    halves = HALVES.view(np.float16)
    finite = np.append(np.sort(halves[np.isfinite(halves)].astype(np.float64)), 65536)  # the next one, if there were one
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)  # exact
    around = [np.nextafter(middles, np.float32(side) * np.inf) for side in (-1, 1)]
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38], np.float32)
    floats = np.concatenate([finite.astype(np.float32), middles, *around, special])
    with np.errstate(over='ignore'):
        expected = floats.astype(np.float16)
    found = converted('narrow_all', floats, np.uint16).view(np.float16)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[:-9]), np.signbit(expected[:-9]))
