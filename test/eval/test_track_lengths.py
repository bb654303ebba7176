"""Tracks joined by equal coordinates, against tracks followed one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightglue_trt_eval.baselines import KltMatcher
from lightglue_trt_eval.score.method_score import TrackLengths
from lightglue_trt_ros.datasets.recordings import open_recording


def points(*columns):
    """Points on the line v = 2u."""
    u = np.asarray(columns, np.float32).reshape(-1)
    return np.column_stack([u, 2 * u])


def test_tracks_by_hand():
    tracks = TrackLengths()
    assert tracks.add((points(1, 2, 3), points(11, 12, 13))) is None
    assert tracks.add((points(13, 11, 9), points(23, 21, 29))) == pytest.approx(2 / 3)
    assert tracks.add((points(21, 22), points(31, 32))) == pytest.approx(1 / 3)
    # 2 lived for 2 frames, 9 for 2, 3 for 3, 1 for 4, 22 for 2 and goes on.
    assert tracks.histogram() == {2: 3, 3: 1, 4: 1}
    assert tracks.histogram() == {2: 3, 3: 1, 4: 1}
    assert tracks.ended() == [(0, 0), (2, 1), (2 + 3, 2), (4 + 2, 2)]


def test_a_pair_without_matches_ends_every_track():
    tracks = TrackLengths()
    pair = points(1, 2), points(1, 2)
    assert tracks.add(pair) is None
    assert tracks.add((points(), points())) == 0
    assert tracks.add(pair) is None
    assert tracks.add(None) is None
    assert tracks.add((points(), points())) is None
    assert tracks.add(pair) is None
    assert tracks.add(pair) == 1
    assert tracks.histogram() == {2: 4, 3: 2}


def test_points_that_meet_or_part_are_one_track():
    tracks = TrackLengths()
    tracks.add((points(1, 2), points(11, 12)))
    tracks.add((points(5, 11, 12), points(21, 21, 22)))  # 5 is new and meets 1: the longer one goes on
    tracks.add((points(21, 21), points(31, 32)))  # two matches of one point: the first
    assert tracks.histogram() == {2: 1, 3: 1, 4: 1}


def test_the_sign_of_zero_is_no_difference():
    tracks = TrackLengths()
    tracks.add((points(1), np.array([[-0.0, 5]], np.float32)))
    assert tracks.add((np.array([[0.0, 5]], np.float32), points(3))) == 1


@given(st.lists(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=6, unique_by=(lambda m: m[0], lambda m: m[1])),
                max_size=8))
def test_as_one_by_one(pairs):
    tracks, ended, alive = TrackLengths(), Counter(), {}
    for matches in pairs:
        expected = None if not alive else np.mean([point in dict(matches) for point in alive])
        found = tracks.add((points([m[0] for m in matches]), points([m[1] for m in matches])))
        assert found == (None if expected is None else pytest.approx(expected))
        ended.update(length for point, length in alive.items() if point not in dict(matches))
        alive = {there: alive.get(here, 1) + 1 for here, there in matches}
    assert tracks.histogram() == dict(ended + Counter(alive.values()))


def test_a_drive_followed_by_klt(shared_data):
    tracks, matcher, matches, shares = TrackLengths(), KltMatcher(300), 0, []
    views = open_recording(shared_data / 'kitti_short_1').images()  # type: ignore[attr-defined]  # of folders
    for (_, image), _ in zip(views, range(8), strict=False):
        found = matcher.process(image)
        if found is not None:
            matches += len(found[0])
            shares.append(tracks.add(found))
    assert shares[0] is None
    assert 0.4 < np.mean(shares[1:]) < 1
    assert sum((length - 1) * count for length, count in tracks.histogram().items()) == matches
    assert max(tracks.histogram()) == 8
