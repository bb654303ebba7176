"""What stands still in the image of a moving camera, and a standing camera with something that moves before it."""

import cv2
import numpy as np
import pytest

from lightglue_trt_ros.core.config import EngineSpec, MatcherConfig
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.core.frame_matcher import FrameMatcher
from lightglue_trt_ros.core.score_calibration import UNCALIBRATED
from lightglue_trt_ros.core.static_evidence import Displacements, StaticEvidence
from lightglue_trt_ros.core.static_points import StaticPoints
from lightglue_trt_ros.core.types import HostFeatures, Matches

SIZE = (480, 640)
FOCAL = 500.0


def scattered(rng, count, left=0.0, top=0.0, right=SIZE[1] - 1.0, bottom=SIZE[0] - 1.0):
    return rng.uniform((left, top), (right, bottom), (count, 2)).astype(np.float32)


def judge(points, before, after, *, unit=1.0, rows=None, next_rows=None):
    rows = np.arange(len(before)) if rows is None else rows
    size = round(SIZE[0] * unit), round(SIZE[1] * unit)
    next_rows = rows if next_rows is None else next_rows
    judged = points.judge(rows, next_rows, before * np.float32(unit), after * np.float32(unit), size, unit)
    points.learn(np.zeros(size, np.uint8), judged)
    return judged


def moved(rng, points, noise, u=0.0, v=0.0):
    return (points + np.array([u, v]) + rng.normal(0, 1, points.shape) * noise).astype(np.float32)


def depth_of(points):
    """Metres of a road that is seen from a height of 1.5 m, and of what stands 30 m away above it."""
    return np.minimum(1.5 * FOCAL / np.maximum(points[:, 1] - SIZE[0] / 2, 1), 30.0)


def seen(points, depth, turn=(0.0, 0.0, 0.0), step=(0.0, 0.0, 0.0)):
    """Points of a scene, after a camera turned by a rotation vector and went `step` metres."""
    centre = np.array([SIZE[1], SIZE[0]]) / 2
    rays = np.column_stack([(points - centre) / FOCAL, np.ones(len(points))])
    moved = (rays * np.reshape(depth, (-1, 1)) - np.asarray(step)) @ cv2.Rodrigues(np.asarray(turn, float))[0]
    return (moved[:, :2] / moved[:, 2:] * FOCAL + centre).astype(np.float32)


def driving(before):
    """Half a metre forwards, in a curve."""
    return seen(before, depth_of(before), (0.002, 0.015, 0.002), (0, 0, 0.5))


def dropped(judged, count):
    return np.zeros(count, bool) if judged.foreign is None else judged.foreign


@pytest.mark.parametrize('unit', [1.0, 2.5])
def test_a_bonnet_does_not_belong_to_the_scene_and_the_road_does(unit):
    rng = np.random.default_rng(0)
    road, bonnet = scattered(rng, 300, bottom=350), scattered(rng, 80, top=400)
    depth, points = depth_of(road), StaticPoints(SIZE)
    for _ in range(5):
        ahead = seen(road, depth, (0.001, 0.006, 0.001), (0, 0, 0.5))
        judged = judge(points, np.concatenate([road, bonnet]), np.concatenate([moved(rng, ahead, 0.3), moved(rng, bonnet, 0.05)]),
                       unit=unit)
        assert not judged.foreign[:300].any()
        road, depth = ahead, depth - 0.5
    assert judged.foreign[300:].mean() > 0.9
    assert judged.motion_px > 3


def test_an_arm_up_to_the_horizon_is_foreign_before_a_plain_road():
    rng = np.random.default_rng(28)
    arm, sides, points = scattered(rng, 120, 270, 200, 370), scattered(rng, 900, top=120), StaticPoints(SIZE)
    sides = sides[np.abs(sides[:, 0] - 320) > 160]
    before = np.concatenate([arm, sides, scattered(rng, 40, 230, 220, 410, 260)])  # next to the arm is only what is far away
    depth = np.append(np.minimum(depth_of(sides), 20.0), np.full(40, 60.0))
    for _ in range(4):
        after = np.concatenate([arm, seen(before[120:], depth, step=(0, 0, 0.6))])
        judged = judge(points, before, moved(rng, after, 0.1))
        before, depth = after, depth - 0.6
    assert dropped(judged, len(before))[:120].mean() > 0.9


def test_a_plain_far_below_is_of_the_scene_where_the_camera_sinks():
    rng = np.random.default_rng(29)
    plain, below, walls = scattered(rng, 150, 250, 300, 390), scattered(rng, 60, 230, 400, 410), scattered(rng, 600)
    walls = walls[(np.abs(walls[:, 0] - 320) > 90) | (walls[:, 1] < 280)]
    before, points = np.concatenate([plain, below, walls]), StaticPoints(SIZE)
    depth = np.concatenate([np.full(150, 900.0), np.full(60, 12.0), rng.uniform(6, 10, len(walls))])
    for _ in range(4):
        after = seen(before, depth, step=(0, 0.19, 0.5))
        judged = judge(points, before, moved(rng, after, 0.1))
        before, depth = after, depth - 0.5
    assert dropped(judged, len(before))[:150].mean() < 0.05


@pytest.mark.parametrize('count', [20, 40, 150])
def test_static_dots_over_whole_image_are_foreign_even_as_majority(count):
    rng = np.random.default_rng(1)
    world, dots = scattered(rng, count), scattered(rng, 700)
    before = np.concatenate([world, dots])
    hand_held = seen(world, rng.uniform(1, 3, count), (0.01, 0.02, 0.01), (0.02, 0.01, 0))
    judged = judge(StaticPoints(SIZE), before, np.concatenate([moved(rng, hand_held, 0.4), dots]))
    assert judged.foreign[count:].mean() > 0.95
    assert not judged.foreign[:count].any()


@pytest.mark.parametrize(('width', 'height'), [(100, 300), (180, 170), (320, 96)])
def test_standing_camera_drops_nothing_while_a_tenth_of_image_moves(width, height):
    rng = np.random.default_rng(2)
    room, person = scattered(rng, 500), scattered(rng, 120, 200, 100, 200 + width, 100 + height)
    hidden = ((room > (200, 100)) & (room < (200 + width, 100 + height))).all(1)
    room = room[~hidden]
    before = np.concatenate([room, person])
    after = np.concatenate([moved(rng, room, 0.1), moved(rng, person, 0.0, 12, 2)])
    points = StaticPoints(SIZE)
    assert not dropped(judge(points, before, after), len(before)).any()
    assert points.standing is None


@pytest.mark.parametrize('boxes', [
    pytest.param([(100, 80, 420, 370)], id='a van'),
    pytest.param([(40, 60, 140, 420), (480, 60, 580, 420)], id='two people'),
    pytest.param([(20, 120, 90, 400), (180, 120, 250, 400), (340, 120, 410, 400), (520, 120, 590, 400)], id='four people'),
    pytest.param([(0, 320, 640, 480)], id='a conveyor belt')])
def test_standing_camera_keeps_background_behind_large_moving_objects(boxes):
    rng = np.random.default_rng(2)
    room = scattered(rng, 500)
    for left, top, right, bottom in boxes:
        room = room[~((room > (left, top)) & (room < (right, bottom))).all(1)]
    movers = np.concatenate([scattered(rng, (box[2] - box[0]) * (box[3] - box[1]) // 800, *box) for box in boxes])
    before, after = np.concatenate([room, movers]), np.concatenate([moved(rng, room, 0.1), moved(rng, movers, 0.1, 12, 2)])
    assert not dropped(judge(StaticPoints(SIZE), before, after), len(before)).any()


@pytest.mark.parametrize('count', [200, 400])
def test_standing_camera_keeps_the_room_around_a_screen_with_a_film(count):
    """A film that a moving camera took has a geometry that no point of the room is of; it is seen in a third of the image."""
    rng = np.random.default_rng(27)
    screen = (128, 96, 512, 384)
    room, film = scattered(rng, 400), scattered(rng, count, *screen)
    room = room[~((room > screen[:2]) & (room < screen[2:])).all(1)]
    before, points = np.concatenate([room, film]), StaticPoints(SIZE)
    for _ in range(3):
        after = np.concatenate([moved(rng, room, 0.1), moved(rng, seen(film, rng.uniform(2, 6, count), (0.01, 0.03, 0.02),
                                                                         (0.05, 0, 0.1)), 0.2)])
        assert not dropped(judge(points, before, after), len(before)).any()
    assert points.standing is None


@pytest.mark.parametrize('step', [(0.15, 0, 0), (0.1, 0, 0.1), (0, 0, 0.4)])
@pytest.mark.parametrize('near', [0, 20])
def test_scenery_far_away_stands_and_belongs_to_the_scene(step, near):
    rng = np.random.default_rng(17)
    far, road = scattered(rng, 200, top=60, bottom=235), scattered(rng, 250, top=250)
    trees = [scattered(rng, near, left, 100, left + 70, 280) for left in (60, 300, 500)]
    points, before = StaticPoints(SIZE), np.concatenate([far, road, *trees])
    depth = np.concatenate([np.full(200, 500.0), depth_of(road), rng.uniform(8, 12, 3 * near)])
    for _ in range(3):
        after = seen(before, depth, step=step)
        judged = judge(points, before, moved(rng, after, 0.15))
        assert dropped(judged, len(before))[:450].mean() < 0.02
        before, depth = after, depth - step[2]
    assert not points.pixels.blocked
    assert points.standing is None


def test_where_none_was_foreign_for_long_few_frames_are_judged(monkeypatch):
    """Past scenery far away, until something covers a corner of the lens."""
    rng, judged_in, number = np.random.default_rng(26), [], 0
    motion = Displacements.common_motion
    monkeypatch.setattr(Displacements, 'common_motion', lambda points: judged_in.append(number) or motion(points))
    far, road, cover = scattered(rng, 80, top=60, bottom=235), scattered(rng, 300, top=250), scattered(rng, 40, top=400, right=100)
    before, points, shares = np.concatenate([far, road]), StaticPoints(SIZE), []
    depth = np.concatenate([np.full(80, 500.0), depth_of(road)])
    for number in range(60):
        is_covered = number >= 41
        after = moved(rng, seen(before, depth, (0, 0.01 * is_covered, 0), (0.15, 0, 0)), 0.1)
        covered = cover if is_covered else cover[:0]
        judged = judge(points, np.concatenate([before, covered]), np.concatenate([after, covered]))
        shares.append(dropped(judged, 420)[380:].mean() if is_covered else 0.0)
    assert judged_in == [*range(16), 20, 25, 30, 35, 40, *range(45, 60)], 'each again, once there is something'
    assert min(shares[45:]) > 0.9


@pytest.mark.parametrize(('count', 'moves'), [
    (60, lambda rng, points: scattered(rng, len(points))), (200, lambda rng, points: points + rng.normal((4, 0), 4, points.shape))],
    ids=['wrong matches', 'leaves that sway'])
def test_what_moves_before_a_standing_camera_drops_nothing(count, moves):
    rng = np.random.default_rng(3)
    room = scattered(rng, 500)
    after = room + rng.normal(0, 0.1, room.shape).astype(np.float32)
    after[:count] = moves(rng, after[:count])
    assert not dropped(judge(StaticPoints(SIZE), room, after), 500).any()


def test_points_at_the_focus_of_expansion_are_not_dropped():
    rng = np.random.default_rng(5)
    before = np.concatenate([scattered(rng, 300), scattered(rng, 60, 305, 175, 355, 225)])
    after = before + (before - (330, 200)) * np.float32(0.02)
    assert dropped(judge(StaticPoints(SIZE), before, after), 360).mean() < 0.01


def test_a_track_is_judged_over_as_many_frames_as_it_stands():
    """Two pixels a frame tell nothing at once."""
    rng = np.random.default_rng(6)
    world, dirt = scattered(rng, 300), scattered(rng, 60)
    points, dropped_in = StaticPoints(SIZE), []
    for frame in range(4):
        rows = np.roll(np.arange(360), frame) if frame else np.arange(360)
        next_world = world + np.float32((2, 0))
        before, after = np.concatenate([world, dirt]), np.concatenate([next_world, dirt])
        judged = judge(points, before, after, rows=rows, next_rows=np.roll(np.arange(360), frame + 1))
        dropped_in.append(0 if judged.foreign is None else np.count_nonzero(judged.foreign[300:]))
        assert judged.foreign is None or not judged.foreign[:300].any()
        world = next_world
    assert dropped_in[0] == 0
    assert dropped_in[1] == 60
    points.forget_tracks()
    assert judge(points, before, after).foreign is None


@pytest.mark.parametrize('mode', ['auto', 'drop'])
def test_fewer_than_can_be_told_are_not_judged_unless_all_are_dropped(mode, monkeypatch):
    """Most points that stand are far away, where the others' motion is little; judging them to the end takes milliseconds."""
    rng = np.random.default_rng(16)
    road, far, dirt = scattered(rng, 300, top=260), scattered(rng, 40, 270, 222, 370, 228), scattered(rng, 8, top=300)
    before = np.concatenate([road, far, dirt])
    after = np.concatenate([road + (road - (320, 225)) * np.float32(0.04), far, dirt])
    asked = []
    monkeypatch.setattr(StaticEvidence, 'among_fast', lambda self: asked.append(self) or np.zeros(len(self.rows), np.bool_))
    judged = judge(StaticPoints(SIZE, mode), before, after)
    assert not asked
    assert judged.standing is not None
    assert (judged.foreign is None) == (mode == 'auto')


def test_drop_asks_for_a_motion_alone():
    rng = np.random.default_rng(7)
    room, car = scattered(rng, 400), scattered(rng, 100, 100, 100, 200, 400)
    before = np.concatenate([room, car])
    after = np.concatenate([room, moved(rng, car, 0.0, 12, 2)])
    assert judge(StaticPoints(SIZE, 'drop'), before, after).foreign[:400].all()
    assert judge(StaticPoints(SIZE), before, after).foreign is None


@pytest.mark.parametrize('count', [0, 1, 5])
def test_few_matches_are_no_reason_for_anything(count):
    before = scattered(np.random.default_rng(8), count)
    assert judge(StaticPoints(SIZE), before, before).foreign is None


def test_lasting_static_structure_is_reported_with_its_position():
    rng = np.random.default_rng(14)
    points, bonnet = StaticPoints(SIZE), scattered(rng, 60, top=420)
    for _ in range(10):
        road = scattered(rng, 300, bottom=350)
        judge(points, np.concatenate([road, bonnet]), np.concatenate([driving(road), bonnet]))
    assert points.standing.share > 0.05
    assert points.standing.where == 'at the bottom'
    assert 'make_mask' in points.standing.in_words
    assert 'dropped' in points.standing.in_words
    for _ in range(40):
        judge(points, road, driving(road))
    assert points.standing is None


@pytest.mark.parametrize('many', [100, 600])
def test_a_bonnet_with_most_of_the_points_is_foreign(many):
    """On a world of little texture: a narrow band of it."""
    rng = np.random.default_rng(21)
    points, bonnet = StaticPoints(SIZE), scattered(rng, many, top=400)
    for _ in range(6):
        world = scattered(rng, 60, top=200, bottom=330)
        after = seen(world, np.full(len(world), 8.0), (0.004, 0.012, 0.0))
        foreign = dropped(judge(points, np.concatenate([world, bonnet]), np.concatenate([after, bonnet])), len(world) + many)
    assert foreign[len(world):].mean() > 0.95
    assert not foreign[:len(world)].any()


def test_a_belt_above_a_standing_machine_drops_nothing():
    rng = np.random.default_rng(22)
    machine, points = scattered(rng, 400, top=240), StaticPoints(SIZE)
    for _ in range(5):
        belt = scattered(rng, 150, bottom=230)
        after = np.concatenate([moved(rng, belt, 0.1, 12), moved(rng, machine, 0.1)])
        assert not dropped(judge(points, np.concatenate([belt, machine]), after), 550).any()


@pytest.mark.parametrize('speed', [(4, 0), (0, 6), (5, 3)])
def test_standing_camera_keeps_room_below_clouds_for_many_frames(speed):
    """Errors of the geometry add up over a track, and a plane leaves it open."""
    rng = np.random.default_rng(25)
    room, points = scattered(rng, 400, top=200), StaticPoints(SIZE)
    clouds, before = scattered(rng, 250, bottom=190), moved(rng, room, 0.1)
    for _ in range(20):
        drifting, after = moved(rng, clouds, 0.1, *speed), moved(rng, room, 0.1)
        judged = judge(points, np.concatenate([before, clouds]), np.concatenate([after, drifting]), rows=np.arange(650))
        assert not dropped(judged, 650).any()
        before, clouds = after, drifting
    assert points.standing is None


def test_standing_camera_keeps_plain_room_behind_textured_half_of_image():
    rng = np.random.default_rng(26)
    room, lorry, points = scattered(rng, 250, left=330), scattered(rng, 600, right=310), StaticPoints(SIZE)
    for _ in range(6):
        after = np.concatenate([moved(rng, room, 0.1), moved(rng, lorry, 0.1, 12, 2)])
        assert not dropped(judge(points, np.concatenate([room, lorry]), after), 850).any()


def test_two_frames_with_much_that_stands_are_no_warning_yet():
    rng = np.random.default_rng(18)
    points, bonnet = StaticPoints(SIZE), scattered(rng, 200, top=400)
    for _ in range(2):
        road = scattered(rng, 300, bottom=350)
        judged = judge(points, np.concatenate([road, bonnet]), np.concatenate([driving(road), bonnet]))
        assert judged.foreign.mean() > 0.3
    assert points.standing is None


class DottedBackend:
    """Frame n shows points of a world that turns about the middle, and dots that stand; row i is point i, and matches row i."""

    def __init__(self):
        rng = np.random.default_rng(15)
        self.spec, self.description, self.score_calibration = EngineSpec(*SIZE, 240), 'dotted', UNCALIBRATED
        self.early_exits = EarlyExits((6,))
        self.world, self.dots = scattered(rng, 180), np.rint(scattered(rng, 60, 20, 20, 600, 440))
        self.masks = []

    def image(self, number):
        texture = np.random.default_rng(16).uniform(0, 255, SIZE).astype(np.float32)
        turned = cv2.warpAffine(cv2.GaussianBlur(texture, (0, 0), 2), self.turn(number), SIZE[::-1], borderMode=cv2.BORDER_WRAP)
        image = turned / 2
        for u, v in self.dots.astype(int).tolist():
            image[v - 1:v + 2, u - 1:u + 2] = 250
        return image.astype(np.uint8)

    def turn(self, number):
        return cv2.getRotationMatrix2D((320, 200), 3.0 * number, 1.0)

    def extract(self, image, mask=None):
        self.masks.append(mask)
        world = cv2.transform(self.world[None], self.turn(len(self.masks) - 1))[0]
        points = np.concatenate([world, self.dots]).astype(np.float32)
        return HostFeatures(points, np.full(240, 0.5, np.float32), np.zeros((240, 256), np.float32))

    def match(self, reference, current, thresholds):
        return Matches(np.arange(240, dtype=np.int32), np.full(240, 0.9, np.float32), 9)


def matched(mode, frames=8):
    backend = DottedBackend()
    matcher = FrameMatcher(backend, MatcherConfig(max_keypoints=240, refinement='none', static_points=mode))
    return backend, [matcher.process(backend.image(number), 0.1 * number) for number in range(frames)][1:]


def test_frame_matcher_drops_static_points_and_masks_their_keypoints():
    backend, published = matched('auto')
    for matches in published[2:]:  # nothing moves in the middle, which the camera turns about
        assert 180 <= len(matches) < 190
    assert published[-1].track_lengths.max() == 8
    assert published[-1].standing.dropped
    assert 'of the image, in all parts of it, stands still' in published[-1].standing.in_words
    mask = backend.masks[-1]
    columns, rows = backend.dots.astype(int).T
    assert (mask[rows, columns] == 0).all()
    assert (mask == 0).mean() < 0.2
    assert backend.masks[0] is None


def test_keep_publishes_static_points_and_reports_them():
    backend, published = matched('keep')
    assert all(len(matches) == 240 for matches in published)
    assert all(mask is None for mask in backend.masks)
    assert not published[-1].standing.dropped
    assert 'kept' in published[-1].standing.in_words
