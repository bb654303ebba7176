"""Every error of datasets/, by a real input: each names the file or topic, what was found, and what is needed."""

from __future__ import annotations

import ast
import gzip
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml

pytest.importorskip('rosbags', reason='bags need the Python package rosbags')
from support import bags
from support.bags import IMAGE, TRANSFORM, database, mcap, mcap_chunk, mcap_message, storage_file, write_messages
from support.camera_info_bags import ZERO, Images, camera_bag
from support.compression import zstd
from support.full_disks import room_for
from support.transport_bags import bag, packed

from lightglue_trt_eval.demo import flight
from lightglue_trt_ros.core.cameras import Intrinsics
from lightglue_trt_ros.core.drawing import draw_matches
from lightglue_trt_ros.core.types import FrameMatches
from lightglue_trt_ros.datasets import bag_storage
from lightglue_trt_ros.datasets.bag_writer import encode, write_bag
from lightglue_trt_ros.datasets.calibration_files import check_size, load_baseline, load_camera_in_body, load_intrinsics
from lightglue_trt_ros.datasets.calibration_pairs import load_pair
from lightglue_trt_ros.datasets.ground_truth import load_ground_truth, poses_at
from lightglue_trt_ros.datasets.poses import Trajectory
from lightglue_trt_ros.datasets.recordings import open_recording
from lightglue_trt_ros.datasets.sequence import ImageRecord
from lightglue_trt_ros.datasets.stereo_and_depth import depth_of, right_of, stereo_recording
from lightglue_trt_ros.utils.errors import LightglueTrtError
from lightglue_trt_ros.utils.limits import UNPACKED_VARIABLE

PACKAGE = Path(bag_storage.__file__).parent
GRAY = np.random.default_rng(0).integers(0, 256, (12, 16), np.uint8)
STAMPS = [10**9 * number for number in range(1, 5)]
OWN = {'width': 16, 'height': 12, 'fx': 20.0, 'fy': 20.0, 'cx': 8.0, 'cy': 6.0}
EUROC = {'resolution': [16, 12], 'intrinsics': [20, 20, 8, 6], 'distortion_model': 'radtan', 'distortion_coefficients': [0] * 4}
ROS = {'image_width': 16, 'image_height': 12, 'camera_matrix': {'data': [20, 0, 8, 0, 20, 6, 0, 0, 1]}}
VINS = {'image_width': 16, 'image_height': 12, 'model_type': 'PINHOLE', 'projection_parameters': {
    'fx': 20, 'fy': 20, 'cx': 8, 'cy': 6}, 'distortion_parameters': {'k1': 0, 'k2': 0, 'p1': 0, 'p2': 0}}
ORB = {'Camera.fx': 20, 'Camera.fy': 20, 'Camera.cx': 8, 'Camera.cy': 6, 'Camera.width': 16, 'Camera.height': 12}
EYE = np.eye(4).ravel().tolist()
TUM = '{} 0 0 0 0 0 0 1\n'
LFS = f'version https://git-lfs.github.com/spec/v1\noid sha256:{"0" * 64}\nsize 1234\n'
KITTI = '1 0 0 0 0 1 0 0 0 0 1 0\n'
REALSENSE = ''.join(f'Intrinsic of "Color" / 16x12\n Width: 16\n Height: 12\n Fx: {fx}\n\n' for fx in (20, 21))
LIMIT = f'or raise {UNPACKED_VARIABLE}'


def file(path: Path, content: Any) -> Path:
    """A file with bytes, a text, or a mapping as YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, (bytes, str)) else yaml.safe_dump(content)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def written(path: Path, **given: Any) -> Path:
    write_bag(path, [(stamp, GRAY) for stamp in STAMPS], **{'storage': 'mcap', **given})
    return path


def with_two_rows(path: Path) -> Path:
    """A database of which two messages of four are gone."""
    with database(written(path, storage='sqlite3')) as tables:
        tables.execute('DELETE FROM messages WHERE id > 2')
    return path


def frames(path: Path, topic: str | None = None) -> list[Any]:
    return [frame.load() for frame in open_recording(path, topic).frames()]


def message(path: Path, kind: str, data: bytes, topic: str) -> Path:
    """A bag with one message of these bytes."""
    return write_messages(path, {topic: (kind, [(1, data)])})


def image(path: Path, data: bytes) -> Path:
    return message(path, IMAGE, data, '/cam')


def of_one_message(path: Path, encoding: str = 'cdr', data: bytes = b'data', chunk: bool = False) -> Path:
    """An mcap with a message of an encoding, by itself or in a chunk."""
    record = mcap_message(data)
    return file(path, mcap(mcap_chunk(zstd(record), len(record)) if chunk else record, encoding=encoding))


def cut_off(path: Path) -> Path:
    whole = storage_file(written(path))
    whole.write_bytes(whole.read_bytes()[:300])
    return path


def chunked(path: Path) -> Path:
    """A bag with a chunk that is small as long as it is compressed."""
    return write_messages(path, {'/cam': (IMAGE, [(1, bytes(2 << 20))])}, 'mcap', 'storage')


def limited(action: Callable[[], Any]) -> Any:
    """With 1 MiB for what is unpacked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UNPACKED_VARIABLE, '1')
        return action()


def without(names: tuple[str, ...], action: Callable[[], Any]) -> Any:
    """As where these modules are not installed."""
    bag_storage.rosbags_modules.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in names:
                patch.setitem(sys.modules, name, None)
            return action()
    finally:
        bag_storage.rosbags_modules.cache_clear()


def drawing() -> np.ndarray:
    points = np.random.default_rng(5).uniform([0, 0], [160, 120], (60, 2)).astype(np.float32)
    return draw_matches(np.zeros((120, 160), np.uint8), FrameMatches(
        1.0, 0.9, points, points + 3, np.ones(60, np.float32), np.arange(60, dtype=np.uint32), np.full(60, 4, np.uint32),
        np.tile(np.eye(2, dtype=np.float32), (60, 1, 1)), np.zeros(60, np.bool_), {}, 6, image_size=(120, 160)))


def with_empty_topic(path: Path) -> Path:
    content = yaml.safe_load((written(path, image_topic='/other') / 'metadata.yaml').read_text())
    topics = content['rosbag2_bagfile_information']['topics_with_message_count']
    topics.append({'message_count': 0, 'topic_metadata': {**topics[0]['topic_metadata'], 'name': '/cam'}})
    file(path / 'metadata.yaml', content)
    return path


def two_formats(path: Path) -> Path:
    for storage, ending in (('mcap', 'mcap'), ('sqlite3', 'db3')):
        shutil.copy(next(written(path.with_name(ending), storage=storage).glob(f'*.{ending}')), file(path / f'a.{ending}', b''))
    return path


def without_files(path: Path) -> Path:
    storage_file(written(path)).unlink()
    return path


def folder(path: Path, count: int = 2, stamps: str = '1\n2\n') -> Path:
    """images/ and timestamps.txt."""
    for number in range(count):
        png(path / 'images' / f'{number}.png')
    file(path / 'timestamps.txt', stamps)
    return path


def png(path: Path, pixels: np.ndarray = GRAY) -> Path:
    return file(path, cv2.imencode('.png', pixels)[1].tobytes())


def kitti(path: Path, calib: str = '', poses: str = '') -> Path:
    for number in range(2):
        png(path / 'image_0' / f'{number}.png')
    file(path / 'times.txt', '0\n1\n')
    for name, content in (('calib.txt', calib), ('poses.txt', poses)):
        if content:
            file(path / name, content)
    return path


def truth(at: Path, content: str, **given: Any) -> Any:
    """Of two images at 1 and 2 s, by a file."""
    return load_ground_truth(open_recording(folder(at / 'f')), file=file(at / 'poses.txt', content), **given)


def camera(at: Path, content: Any, name: str = 'c.yaml', rectified: bool = False) -> Intrinsics:
    file(at / 'c.yaml', content)
    return load_intrinsics(at / name, rectified)


def moving(path: Path, *children: str, unit: float = 1.0, mountings: Sequence[float] = ()) -> Any:
    """A recording of images and a topic with poses of these frames; with none, of one pose that stays."""
    poses = []
    for stamp in STAMPS[:3]:
        pose = np.eye(4)
        pose[0, 3] = unit * stamp / 10**9
        poses += [(stamp, bags.transform(stamp, 'map', child, pose)) for child in children]
    images = [(stamp, bags.image(stamp, 'cam', GRAY)) for stamp in STAMPS[:3]]
    static = [(1, bags.new(bags.TF, [bags.transform(1, 'body', 'cam', np.diag([1, y, y, 1]))])) for y in mountings]
    return open_recording(write_messages(path, {
        '/cam': (IMAGE, images), '/poses': (TRANSFORM, poses), **({'/tf_static': (bags.TF, static)} if static else {})}))


def in_small_room(action: Callable[[], Any]) -> Any:
    with room_for(2000):
        return action()


def turned(matrix: list[float], *changes: tuple[int, float]) -> list[float]:
    changed_one = list(matrix)
    for place, value in changes:
        changed_one[place] = value
    return changed_one


ZSTD_IMAGE = packed(GRAY, 'mono8', gzip.compress)[1]
BAGS: dict[str, tuple[Callable[[Path], Any], str]] = {
    'no stamp': (lambda at: list(open_recording(write_messages(at / 'bag', {'/cam': (IMAGE, [
        (number, bags.image(stamp, 'cam', GRAY)) for number, stamp in enumerate((1, 0))])})).frames()),
        r'bag, message 2 of /cam has header.stamp 0, and others have a time: see why the driver did not stamp it'),
    'absent': (lambda at: open_recording(at / 'x'), r'/x does not exist'),
    'camera of a folder': (lambda at: open_recording(folder(at / 'f'), None, 'front'), r'/f is a folder of images, of one camera:'),
    'no bag': (lambda at: open_recording(file(at / 'a.txt', 'x')),
        r'a.txt is no rosbag2 file \(.*\): name a bag or an image folder'),
    'metadata for its folder': (lambda at: open_recording(written(at / 'b') / 'metadata.yaml'),
                                r'b/metadata.yaml is no rosbag2 file .*: name its folder, .*/b'),
    'folder of bags': (lambda at: open_recording(written(at / 'f' / 'b').parent),
                       r'/f is no recording, and has 1 bag in it: name one, as .*/f/b'),
    'archive': (lambda at: open_recording(file(at / 'a.zip', 'x')), r'a.zip is no rosbag2 file .*: unpack it first, and name what'),
    'ROS 1': (lambda at: open_recording(file(at / 'a.bag', '#ROSBAG')), r'a.bag is no rosbag2 .*: convert this ROS 1 bag: pip'),
    'fewer than promised': (lambda at: frames(with_two_rows(at / 'b')),
        r'/b ends after 2 of the 4 messages that it promises on /camera/image_raw: it was cut off or is damaged;'),
    'calibration of zeros': (lambda at: open_recording(camera_bag(at / 'b', {
        '/image_raw': Images(), '/camera_info': [ZERO] * 3})).intrinsics, r'/b, message 1 of /camera_info: .*calibrate'),
    'own pictures': (lambda at: open_recording(bag(at / 'b', {'/debug': [('bgr8', drawing())]})),
                     r'/b: /debug has the pictures that the matcher draws .*name its topic \(--image-topic\). It holds: /debug'),
    'no such topic': (lambda at: open_recording(bag(at / 'b', {'/cam': [('mono8', GRAY)]}), '/x'),
                      r'/b has no images on /x. It holds: /cam \(sensor_msgs/msg/Image, 1 messages\)'),
    'empty topic': (lambda at: open_recording(with_empty_topic(at / 'b'), '/cam'),
        r'/b has no message on /cam: see that .* with the QoS it offers .*It holds: /cam .*; /other'),
    'empty topic, the only one': (lambda at: open_recording(write_messages(at / 'b', {'/cam': (IMAGE, [])})),
                                  r'/b has no message on /cam: see that .*'
                                  r'\(ros2 topic info --verbose /cam, ros2 bag record --qos-profile-overrides-path\)'),
    'pointer of Git LFS': (lambda at: open_recording(file(at / 'a.mcap', LFS)),
                           r'a.mcap is a pointer of Git LFS, without the data: run git lfs install and git lfs pull in its rep'),
    'list that is a pointer': (lambda at: open_recording(folder(at / 'f', 2, LFS)),
                               r'cannot read .*/timestamps.txt: it is a pointer of Git LFS, without the data'),
    'depth among images': (lambda at: open_recording(png(folder(at / 'f') / 'images' / '0.depth.png').parents[1]),
                           r'/images holds 3 images, 1 of them depth by their names, as 0.depth.png: move those into depth/ next'),
    'picture that is a pointer': (lambda at: frames(file(folder(at / 'f') / 'images' / '0.png', LFS).parents[1]),
                                  r'/0.png is a pointer of Git LFS, without the data'),
    'depth that is a pointer': (lambda at: depth_frames(at, LFS.encode()), r'd.png is a pointer of Git LFS, without the data'),
    'archive of ROS 1': (lambda at: open_recording(file(at / 'a.bag.zst', 'x')), r'a.bag.zst is no .*: unpack it first, and name'),
    'no images': (lambda at: open_recording(message(at / 'b', 'std_msgs/msg/String', b'', '/chat')),
                  r'/b holds no images \(sensor_msgs/msg/Image or .*\). It holds: /chat \(std_msgs/msg/String, 1 messages\)'),
    'two cameras': (lambda at: open_recording(bag(at / 'b', {name: [('mono8', GRAY)] for name in ('/a/image', '/b/image')})),
                    r'/b holds 2 image topics, choose one \(--image-topic\); .*--right-topic. It holds: /a/image'),
    'messages of ROS 1': (lambda at: open_recording(of_one_message(at / 'a.mcap', 'ros1')),
                          r'a.mcap holds messages of ROS 1 \(/cam .*rosbags-convert --src'),
    'other encoding': (lambda at: open_recording(of_one_message(at / 'a.mcap', 'protobuf')),
                       r'a.mcap holds messages in protobuf \(/cam .*cdr is needed, which ROS 2 writes: record the topics with'),
    'video': (lambda at: open_recording(message(at / 'b', 'theora_image_transport/msg/Packet', b'', '/cam/theora')),
              r'/b holds images in packets of a video only, /cam/theora .*: play it, and record'),
    'video of images': (lambda at: open_recording(bag(at / 'b', {'/cam/h264': [('h264', b'\0\0\0\1\x67')]})),
        r'/b holds images in packets of a video, /cam/h264 .*: play it into a decoder, .*, and record the sensor_msgs/msg/Image'),
    'right topic of a folder': (lambda at: right_of(open_recording(folder(at / 'f')), '/right'),
                                r'/f is an image folder without a topic /right: its right images are found by themselves'),
    'depth topic of a folder': (lambda at: depth_of(open_recording(folder(at / 'f')), '/depth'),
                                r'/f is an image folder without a topic /depth: give --depth, which finds its depth images'),
    'folder without depth': (lambda at: depth_of(open_recording(folder(at / 'f'))),
        r'/f has no depth images: put them into depth/'),
    'bag without depth': (lambda at: depth_of(open_recording(bag(at / 'b', {'/cam': [('mono8', GRAY)]}))),
                          r'/b has no depth images: none of its topics has .*16UC1 or 32FC1, or compressedDepth. It holds: /cam'),
    'bag with depth of two': (lambda at: depth_of(open_recording(bag(at / 'b', {
        '/cam': [('mono8', GRAY)], '/depth': [('16UC1', GRAY.astype(np.uint16))]}, {'/depth': 'other'}))),
        r"/b does not say which depth images are registered to /cam: .*frame_id 'cam': /depth \('other'\). .*\(--depth-topic\)"),
    'images of another type': (lambda at: open_recording(message(at / 'b', 'foxglove_msgs/msg/CompressedImage', b'', '/cam')),
        r'/b holds images of another type, /cam \(foxglove_msgs/.*: publish them as one of these, and record that'),
    'no right images': (lambda at: stereo_recording(open_recording(bag(at / 'b', {'/cam': [('mono8', GRAY)]}))),
                        r'/b does not say which images are the right ones: .*\(--right-topic\)'),
    'stereo without calibration': (lambda at: stereo_recording(open_recording(bag(at / 'b', {
        name: [('mono8', GRAY)] for name in ('/a/image', '/b/image')}), '/a/image'), '/b/image'),
        r'/b has no calibration for /a/image: stereo needs that of both cameras, as --camera camchain.yaml g'),
    'folder of ROS 1': (lambda at: open_recording(file(at / 'f' / 'a.bag', '#ROSBAG').parent),
        r'/f holds 1 bag of ROS 1, a.bag: con'),
    'folder of something': (lambda at: open_recording(file(at / 'f' / 'a.txt', '').parent),
                            r'/f is neither a rosbag2 \(metadata.yaml\) nor an image folder \(.*\): it holds a.txt'),
    'two formats': (lambda at: open_recording(two_formats(at / 'f')),
        r'/f holds bags of two formats, a.db3, a.mcap: name the one that'),
    'parts that are gone': (lambda at: open_recording(without_files(at / 'b')),
        r'metadata.yaml names b.mcap, and .*/b has no such file: copy it there, or name the folder that has it'),
    'message that is no zstd': (lambda at: frames(image(at / 'b', b'\x28\xb5\x2f\xfdxxxx')),
                                r'/b, message 1 of /cam: 8 bytes are no whole zstd \(.*\): they are damaged, copy the bag again'),
    'file that becomes too large': (lambda at: limited(lambda: open_recording(file(at / 'a.mcap.zstd', zstd(bytes(64 << 20))))),
                                    rf'a.mcap.zstd, \d+ bytes, becomes more than \d+ MiB: unpack it yourself \(zstd -d\), {LIMIT}'),
    'file that is no zstd': (lambda at: open_recording(file(at / 'a.mcap.zstd', b'nothing')),
                             r'cannot unpack .*a.mcap.zstd, 7 bytes: .* it is cut off, or no zstd: copy it again'),
    'mcap that is cut off': (lambda at: frames(file(at / 'a.mcap', mcap(mcap_message(b'data'))[:-60])),
                             r'a.mcap is cut off: copy it again'),
    'mcap that is cut off, with metadata': (lambda at: frames(cut_off(at / 'b')), r'/b/b.mcap is cut off: copy it again'),
    'chunk that becomes too large, with metadata': (lambda at: limited(lambda: frames(chunked(at / 'b'))),
        r'/b.mcap: \d+ bytes of zstd become more than 1 MiB: raise LIGHTGLUE'),
    'no mcap': (lambda at: open_recording(file(at / 'a.mcap', b'nothing')),
                r'cannot read .*a.mcap: .*a.mcap does not begin as an mcap file; it may be cut off, .*or no bag'),
    'ROS 1 under another name': (lambda at: open_recording(file(at / 'a.mcap', '#ROSBAG V2.0\n')),
                                 r'a.mcap does not begin as an mcap file, but as a ROS 1 bag: name it .bag, and convert it with'),
    'chunk that becomes too large': (lambda at: limited(lambda: frames(
        of_one_message(at / 'a.mcap', data=bytes(2 << 20), chunk=True))),
                                     r'a.mcap: \d+ bytes of zstd become more than 1 MiB: raise LIGHTGLUE'),
    'record that is too large': (lambda at: limited(lambda: frames(of_one_message(at / 'a.mcap', data=bytes(2 << 20)))),
                                 rf'a.mcap names a record of 2 MiB where 1 are allowed: it is damaged, {LIMIT}'),
    'without zstd': (lambda at: without(('compression.zstd', 'backports.zstd'), lambda: open_recording(
        file(at / 'a.mcap.zstd', b'\x28\xb5\x2f\xfd'))),
        r'zstd needs the Python package backports.zstd, .*: pip install -U rosbags'),
    'parts of nothing': (lambda at: open_recording(file(file(at / 'f' / 'a_0.mcap', 'x').with_name('a_1.mcap'), 'x').parent),
        r'/f has no metadata.yaml, and nothing can be read in a_0.mcap, a_1.mcap: .*does not begin as an mcap file'),
    'empty database': (lambda at: open_recording(file(at / 'a.db3', b'')),
        r'cannot read .*a.db3: .*; it may be cut off, still being'),
    'no room to unpack': (lambda at: in_small_room(lambda: open_recording(file(at / 'a.mcap.zstd', zstd(bytes(9000))))),
                          r'cannot unpack .*a.mcap.zstd into .*; make room, or name another folder in TMPDIR'),
    'without rosbags': (lambda at: without(('rosbags', 'rosbags.typesys'), lambda: open_recording(file(at / 'a.mcap', b''))),
                        r'bags need the Python package rosbags \(.*\): pip install rosbags'),
    'message of no image': (lambda at: frames(image(at / 'b', b'\0\1\0\0' + b'\xff' * 60)),
                            r'/b, message 1 of /cam \(64 bytes\) is no sensor_msgs/msg/Image: .*; the bag is damaged'),
    'zstd image cut off': (lambda at: frames(bag(at / 'b', {'/cam/zstd': [('zstd', ZSTD_IMAGE[:-9])]})),
        r'/b, message 1 of /cam/zstd: \d+ bytes are no image of zstd_image_transport \(cut off.*: check its sender'),
    'no such storage': (lambda at: written(at / 'b', storage='rosbag3'),
        r"storage 'rosbag3', .*: use one of \('sqlite3', 'mcap'\)"),
    'nothing to write': (lambda at: write_bag(at / 'b', []), r'there are no frames to write to .*/b'),
    'bag that exists': (lambda at: written(written(at / 'b')), r'/b exists: choose another name, or overwrite it with --force'),
    'folder that exists': (lambda at: written(file(at / 'b' / 'x', '').parent, force=True),
        r'/b exists and is not a rosbag2 directory'),
    'folder that is a file': (lambda at: written(file(at / 'x', '') / 'b'), r'cannot write .*/x/b: .*File exists|Not a directory'),
    'full disk': (lambda at: in_small_room(lambda: write_bag(at / 'b', [(1, np.zeros((99, 99), np.uint8))] * 9)),
        r'cannot write .*/b: '),
    'too wide for JPEG': (lambda at: encode(np.zeros((1, 70000), np.uint8), 'jpeg'),
                          r'OpenCV cannot encode an image of shape \(1, 70000\) as jpeg: record it without --compressed'),
    'no gray and no colour': (lambda at: write_bag(at / 'b', [(1, np.zeros((4, 4, 2), np.uint8))]),
                              r'an image of shape \(4, 4, 2\) and type uint8: uint8 \(H, W\) or \(H, W, 3\) can be recorded'),
    'depth of bytes': (lambda at: ImageRecord.from_depth(GRAY),
        r'a depth image of shape \(12, 16\) and type uint8: uint16 or float32'),
}
CALIBRATIONS: dict[str, tuple[Callable[[Path], Any], str]] = {
    'ZED, a line of words': (lambda at: camera(at, '[LEFT_CAM_HD]\nfx\n'), r'c.yaml: no calibration of a ZED .*: download it anew'),
    'ZED without fy': (lambda at: camera(at, '[LEFT_CAM_HD]\nfx=1\n'),
        r'c.yaml: a camera without fy: download the calibration anew'),
    'ZED, another size': (lambda at: camera(at, '[LEFT_CAM_HD]\nfx=1\nfy=1\ncx=1\ncy=1\n'),
        r'c.yaml: it is for images of 1280x720: give images of one of these sizes, of one camera each and not resized'),
    'report of Kalibr': (lambda at: camera(at, 'Reprojection error (cam0): mean 0.1\n'),
                         r'c.yaml: a report of Kalibr: give its camchain'),
    'kapture without intrinsics': (lambda at: camera(at, '# kapture format: 1.1\n7, , camera, UNKNOWN_CAMERA, 16, 12\n'),
        r'c.yaml: none of its cameras has intrinsics: 7; calibrate them'),
    'RealSense, twice': (lambda at: load_intrinsics(file(at / 'c.yaml', REALSENSE), size=lambda: (16, 12)),
        r'c.yaml: it describes color more than once for the size of these images: keep one'),
    'Metashape, no frame': (lambda at: camera(at, '<?xml?>\n<projection>fisheye</projection>\n'),
        r'c.yaml: projection fisheye, f None: only "frame" with f is read, .*; export the calibration as OpenCV XML'),
    'Metashape, not aligned': (lambda at: camera(at, '<?xml?>\n<sensor id="0"><calibration class="initial"></sensor>\n'),
        r'c.yaml: its sensor 0 has no calibration of the class "adjusted": align the photos, and export anew'),
    'swapped size': (lambda at: check_size(camera(at, OWN), 16, 12),
        r'for 16x12 pixels, the images have 12x16: its width and height are swapped, as where MATLAB .* rotated; give the cal'),
    'another size': (lambda at: check_size(camera(at, OWN), 480, 640),
        r'the intrinsics are for 16x12 pixels, the images have 640x480: give the calibration of these images \(--camera\)'),
    'no pose': (lambda at: load_camera_in_body(file(at / 'c.yaml', OWN)),
        r'c.yaml does not say where the camera is .*it needs T_BS .*, or T_BS in a YAML file of its own, as 16 numbers'),
    'no baseline': (lambda at: load_baseline(file(at / 'c.yaml', OWN)),
        r'c.yaml has no baseline_m, the metres between left and right'),
    'baseline in millimetres': (lambda at: load_baseline(file(at / 'c.yaml', {'baseline_m': 120.0})),
        r'c.yaml: baseline_m is 120 m, and a rig has .* m: give it in metres, not in millimetres; baseline_m'),
    'a name too many': (lambda at: camera(at, OWN, 'c.yaml:cam0'), r'c.yaml describes one camera without a name: leave out :cam0'),
    'a name of nobody': (lambda at: camera(at, {'cam0': EUROC}, 'c.yaml:cam5'), r'c.yaml has no camera cam5: it has cam0'),
    'a name too few': (lambda at: camera(at, {'cam0': EUROC, 'cam1': EUROC}),
                       r'c.yaml describes the cameras cam0, cam1: choose one, as .*c.yaml:cam0'),
    'an IMU': (lambda at: camera(at, {'imu0': {'rate': 200}}),
        r'c.yaml has no width, it has imu0; the forms that are read: .*Kalibr'),
    'no fx': (lambda at: camera(at, {'width': 16, 'height': 12}),
        r"c.yaml has no fx, it has height, width; the forms that are read: this package's calib"),
    'no file': (lambda at: load_intrinsics(at / 'x.yaml'), r'cannot read .*x.yaml: .*No such file'),
    'no text': (lambda at: load_intrinsics(file(at / 'c.npz', b'\x93NUMPY')),
        r'c.npz has no arrays that are read, .* saved: np.savez\("calib.npz", camera_matrix=K, dist=D\); the f'),
    'binary file': (lambda at: load_intrinsics(file(at / 'c.bin', b'\x93NUMPY')),
        r'c.bin is no text: export it as text, .*; the f'),
    'nine numbers': (lambda at: camera(at, {'width': 16, 'height': 12, 'intrinsic': [20, 20, 8, 6, 0.1, 0, 0, 0.1, 0.2]}),
        r'c.yaml: intrinsic is \[20.0, .*\], and the last row of K is 0, 0, 1: give a matrix, or the numbers by name'),
    'no YAML': (lambda at: camera(at, '{'), r'c.yaml is no YAML, JSON or XML \(while parsing .*\); the forms'),
    'no mapping': (lambda at: camera(at, 'fx'), r"c.yaml is no calibration, it begins with 'fx'; the forms"),
    'another XML': (lambda at: camera(at, '<?xml version="1.0"?>\n<rig/>\n'), r'c.yaml is XML, .*OpenCV .*: export it as such'),
    'inverse of RealSense': (lambda at: camera(at, {**OWN, 'model': 'Inverse Brown Conrady', 'coeffs': [0.1, 0, 0, 0, 0]}),
        r'c.yaml: model: inverse_brown_conrady with D = \[0.1.*\] is not read: undistort the images, or calibrate anew'),
    'D of undistorted images': (lambda at: camera(at, {**OWN, 'k1': 0.1, 'distorted': False}),
        r'c.yaml: distorted: False, and D = \[0.1, .*\] are of the raw images: remove them if the images are undistorted'),
    'D of a fisheye': (lambda at: camera(at, {**OWN, 'D': [0.1, 0.2, 0.3, 0.4]}),
        r'c.yaml: D: \[0.1, 0.2, 0.3, 0.4\] are of a fisheye by the last two, tangential ones are below 0.02: name the model'),
    'wide, without a model': (lambda at: camera(at, {**OWN, 'fx': 6, 'fy': 6, 'dist': [0.003, 0.001, -0.002, 0.0002]}),
        r'c.yaml: dist: .*0.0002. without a model, and K sees 118 degrees from corner to corner: mostly that is a fisheye. Name'),
    'SDF': (lambda at: camera(at, '<?xml version="1.0" ?>\n<sdf version="1.6"><robotNamespace/></sdf>\n'),
        r'c.yaml is SDF: record the camera_info of Gazebo, or write K of a calib.yaml, fx = fy = width / 2 / tan'),
    'w first at the start': (lambda at: truth(at, '1 0 0 0 1 0 0 0\n2 0 0 1 0.8 0.6 0 0\n'),
        r'poses.txt: the first pose is at 0, 0, 0 with .*1.0, 0.0, 0.0, 0.0\], no rotation as w, x, y, z, .*: name the columns'),
    'w first at the start, without times': (lambda at: truth(at, '0 0 0 1 0 0 0\n' * 2), r'0.0\], no rotation as w, .*: name the'),
    'w last at the start': (lambda at: truth(at, '1,0,0,0,0,0,0,1\n'), r'no rotation as x, y, z, w, and one by 180 degrees as w'),
    'a key twice, as after an edit': (lambda at: camera(at, 'width: 16\nheight: 12\nfx: 20\nfy: 20\ncx: 8\ncy: 6\nfps: 1\nfps: 2\n'
        'cy: 6\nfx: 21\n'), r"c.yaml: fx: '20, and again 21' is no number"),
    'two focal lengths': (lambda at: camera(at, {**OWN, 'K': [30, 0, 8, 0, 30, 6, 0, 0, 1]}),
        r'c.yaml: K has the focal length 30, and fx is 20: remove one'),
    'two documents': (lambda at: camera(at, 'width: 16\n---\nwidth: 17\n'), r'c.yaml holds 2 documents \(---\) that differ: keep'),
    'lens next to a camera': (lambda at: camera(at, {'camera': OWN, 'k1': 0.1}), r'c.yaml: k1: 0.1 is not read here, .*Name the'),
    'not finite': (lambda at: camera(at, {**OWN, 'fx': float('nan')}), r'c.yaml: fx: nan is not finite; calibrate the camera'),
    'not finite in words': (lambda at: camera(at, {**OWN, 'fx': 'inf'}), r'c.yaml: fx: inf is not finite; calibrate the camera'),
    'three intrinsics': (lambda at: camera(at, {**EUROC, 'intrinsics': [1, 2, 3]}), r'c.yaml: intrinsics has 3 values, not 4: \[1'),
    'a key of the lens': (lambda at: camera(at, {**OWN, 'radial': [0.1]}),
        r'c.yaml: radial: \[0.1\] is not read here, .*Name the coeff'),
    'no rotation': (lambda at: load_camera_in_body(file(at / 'c.yaml', {**EUROC, 'T_BS': {'data': turned(EYE, (0, 2.0))}})),
                    r'c.yaml: T_BS: its left upper 3x3 is no rotation: \[\[2.0'),
    'another last row': (lambda at: load_camera_in_body(file(at / 'c.yaml', {**EUROC, 'T_BS': {'data': turned(EYE, (15, 2.0))}})),
                         r'c.yaml: T_BS: its last row is \[0.0, 0.0, 0.0, 2.0\], not \[0, 0, 0, 1\]'),
    'rig in millimetres': (lambda at: load_pair(file(at / 'c.yaml', {'cam0': EUROC, 'cam1': {**EUROC, 'T_cn_cnm1': np.reshape(
        turned(EYE, (3, -110.0)), (4, 4)).tolist()}})), r'c.yaml, cam1: the distance between cam0 and cam1 is 110 m, and a rig'),
    'rig of several cameras': (lambda at: load_pair(file(at / 'c.yaml', {'cam0': EUROC, 'cam1': EUROC, 'cam2': {
        **EUROC, 'T_cn_cnm1': np.reshape(EYE, (4, 4)).tolist()}})),
        r'c.yaml describes the cameras cam0, cam1, cam2, and does not say which are left and right: name both, as .*:cam0,cam'),
    'rig of one camera': (lambda at: load_pair(Path(f'{file(at / "c.yaml", {"cam0": EUROC, "cam1": EUROC})}:cam1,cam1')),
        r'c.yaml:cam1,cam1 names no pair: give the left and the right camera, as FILE:cam0,cam1 or LEFT.yaml,RIGHT.yaml'),
    'rig of a camera that is not there': (lambda at: load_pair(Path(f'{file(at / "c.yaml", {"cam0": OWN, "cam1": OWN})}:cam0,x')),
        r'x is no file, and no camera of .*c.yaml: it has cam0, cam1'),
    'rig where one camera is needed': (lambda at: load_intrinsics(Path(f'{file(at / "c.yaml", {"cam0": OWN})}:cam0,cam1')),
        r'c.yaml:cam0,cam1 names two cameras, which --stereo and --right-topic take: name one'),
    'rig without a pose': (lambda at: load_pair(Path(f'{file(at / "c.yaml", {"cam0": OWN, "cam1": OWN})}:cam0,cam1')),
        r'c.yaml, cam1: it does not say how this camera stands to .*c.yaml, cam0: give poses of both in the body, T_cn_cn'),
    'distorted without distortion': (lambda at: camera(at, {**OWN, 'distortion': 'none', 'dist': [0.1, 0, 0, 0]}),
                                     r'c.yaml: its images have no distortion by the model, and D = \[0.1.*: one of both is wrong'),
    'a lens by its type': (lambda at: camera(at, {**OWN, 'camera_type': 'ocam'}),
        r'c.yaml: camera_type: ocam, .* name one of these'),
    'a projection': (lambda at: camera(at, {'width': 16, 'height': 12, 'cam_K': [20, 0, 8, 1, 0, 20, 6, 0, 0, 0, 1, 0]}),
                     r'c.yaml: cam_K is a projection, its fourth column is \[1.0, 0.0, 0.0\]: give K, 3x3'),
    'another model': (lambda at: camera(at, {**OWN, 'model': 'ocam'}),
        r'c.yaml: model: ocam, and only model: pinhole can be used: undist'),
    'a model without its parameters': (lambda at: camera(at, {**OWN, 'model': 'ds', 'xi': 0.1}),
        'c.yaml: ds has no alpha: give xi, alpha before the focal lengths in intrinsics, or as keys'),
    'a model in a file of another tool': (lambda at: camera(at, {'Camera.type': 'Omni', 'Camera.width': 16, 'Camera.height': 12,
        **{f'Camera.{name}': 20 for name in ('fx', 'fy', 'cx', 'cy')}}), 'c.yaml: the lens is omni, whose xi are not read'),
    'coefficients of another model': (lambda at: camera(at, {**OWN, 'model': 'ucm', 'alpha': 0.5, 'dist': [0.1, 0, 0, 0]}),
        r'c.yaml: ucm with D = \[0.1, 0.0, 0.0, 0.0\] is not read: und'),
    'another distortion of a model': (lambda at: camera(at, {**OWN, 'model': 'omni', 'xi': 1, 'distortion_model': 'equidistant',
        'dist': [0.1, 0, 0, 0]}), 'c.yaml: omni with equidistant is not read: undistort'),
    'K of rotated images': (lambda at: camera(at, {**OWN, 'cx': 6, 'cy': 8}),
        r'c.yaml: its principal point 6, 8 is the middle of images of 12x16, as of rotated ones: give K of this size'),
    'a model that is no lens': (lambda at: camera(at, {**OWN, 'model': 'omni', 'xi': -2}),
        r'c.yaml: omni with \[-2.0\] is no lens of images of 16x12: look at the order'),
    'a model that no lens is near': (lambda at: camera(at, {**OWN, 'model': 'omni', 'xi': 1, 'distortion': 'radtan',
        'dist': [0, 0, 0.5, 0]}), r'c.yaml: the nearest equidistant lens is \d+\.\d px off this omni, more than 0.5: undistort'),
    'a model without values': (lambda at: camera(at, {**OWN, 'distortion': 'equidistant'}),
        r'c.yaml has no distortion_coefficients, it has cx, cy, distortion, '),
    'two models in question': (lambda at: camera(at, {**OWN, 'k1': 0.1, 'k4': 0.2}),
        r'c.yaml: k1, k4 are of a fisheye or .*name the'),
    'raw for rectified': (lambda at: camera(at, {**ROS, 'distortion_coefficients': {'data': [0.1, 0, 0, 0]}}, rectified=True),
        r'c.yaml: it has no projection_matrix, and the images are rectified .*Give the calibration of the rectified'),
    'no model': (lambda at: camera(at, {key: value for key, value in {**EUROC, 'distortion_coefficients': [0.1, 0, 0, 0]}.items()
                                        if key != 'distortion_model'}),
                                        r'c.yaml: it has no distortion_model, and D = .*name the model'),
    'VINS, elsewhere': (lambda at: (file(at / 'other.yaml', {**VINS, 'image_width': 'wide'}), camera(
        at, {'cam0_calib': 'other.yaml', 'body_T_cam0': {'data': EYE}}, 'c.yaml:cam0'))[1],
        r"c.yaml, cam0: cam0_calib, other.yaml: image_width: 'wide' is no number"),
    'VINS, elsewhere, without': (lambda at: (file(at / 'other.yaml', {key: VINS[key] for key in VINS if key != 'image_width'}),
                                             camera(at, {'cam0_calib': 'other.yaml'}, 'c.yaml:cam0'))[1],
                                 r'c.yaml, cam0 has no image_width in cam0_calib, other.yaml; the forms'),
    'ORB without a size': (lambda at: camera(at, {'Camera.fx': 20}),
        r'c.yaml: it has no Camera.width: add Camera.width and Camera.height'),
    'no size, other images': (lambda at: (file(at / 'c.yaml', {'fx': 20, 'fy': 20, 'cx': 8, 'cy': 6}),
                                          load_intrinsics(at / 'c.yaml', size=lambda: (32, 12)))[1],
        r'c.yaml: it has no width, .* 8, 6 is far from the middle of the images of 32x12: .*or add width and height'),
    'ORB, raw': (lambda at: camera(at, {**ORB, 'LEFT.D': {'data': [0.1, 0, 0, 0]}}),
        r'c.yaml: LEFT.D is of the raw images, .*: add LEFT.K'),
    'no mapping of numbers': (lambda at: camera(at, {**VINS, 'projection_parameters': 5}),
        r'c.yaml: projection_parameters: 5 is no map'),
    'no data': (lambda at: camera(at, {**ROS, 'camera_matrix': {'rows': 3}}), r'c.yaml has no camera_matrix.data, it has'),
    'no list': (lambda at: camera(at, {**EUROC, 'intrinsics': 5}), r'c.yaml: intrinsics: 5 is no list of numbers'),
    'negative focal length': (lambda at: camera(at, {**OWN, 'fy': -20}), r'c.yaml: fx is 20 and fy -20: give both positive'),
    'half a pixel': (lambda at: camera(at, {**OWN, 'width': 16.5}), r'c.yaml: width: 16.5 is no number of pixels'),
}
FOLDERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    'stamps too few': (lambda at: open_recording(folder(at / 'f', stamps='1\n')),
        r'/f has 1 stamps and 2 images: they must be as many'),
    'no stamps': (lambda at: ((folder(at / 'f') / 'timestamps.txt').unlink(), open_recording(at / 'f')),
                  r'timestamps.txt does not exist: write one stamp per image into it, in seconds, in order of names'),
    'stamp of words': (lambda at: open_recording(folder(at / 'f', stamps='1\nx\n')),
        r"timestamps.txt, line 2: 'x' is not a number of sec"),
    'stamp and file': (lambda at: open_recording(folder(at / 'f', stamps='1.5 0.png\n1.6 1.png\n')),
        r"timestamps.txt, line 1: '1.5 0.png' is more than a number of seconds: leave one in each line, the stamp of an image"),
    'image without a stamp': (lambda at: open_recording(folder(at / 'f', stamps='0.png 1.5\n')),
        r'timestamps.txt: it has no line for 1.png: begin one with this name, and its stamp'),
    'exposure for a stamp': (lambda at: open_recording(folder(at / 'f', stamps='0.png 10.5\n1.png 8.5\n')),
        r'timestamps.txt: the numbers after the names .* no stamps, that of 1.png, 8.5, comes after 10.5: leave one number'),
    'stamp in microseconds': (lambda at: open_recording(folder(at / 'f', stamps='1\n1403636579763555\n')),
                              r"line 2: '1403636579763555' is not a time in seconds between 0 and 2147483647, nor one in nano"),
    'list of nothing': (lambda at: open_recording(file(at / 'f' / 'rgb.txt', '# none\n').parent),
        r'/f lists no image: a line with stamp'),
    'list of stamps alone': (lambda at: open_recording(file(at / 'f' / 'rgb.txt', '1.0\n').parent),
                             r"rgb.txt, line 1: '1.0' is no stamp and file name"),
    'list that leads elsewhere': (lambda at: open_recording(file(at / 'f' / 'rgb.txt', '1 ../a.png\n').parent),
                                  r"rgb.txt names '../a.png', which is .*outside of .*/f: copy what belongs to the recording"),
    'no images in it': (lambda at: open_recording(file(at / 'f' / 'images' / 'a.txt', '').parents[1]),
        r'/images holds no image \(1 other file, as a.txt\): an image folder has images/\*.png \(or .*\) and timestamps.txt'),
    'images in folders': (lambda at: open_recording(png(at / 'f' / 'images' / 'left' / '0.png').parents[2]),
        r'/images holds no image, and the folders left: a recording is of one camera; copy the images of one of these as images/'),
    'right images too few': (lambda at: (png(folder(at / 'f') / 'images_right' / '0.png'), open_recording(at / 'f').right),
                             r'/f has 2 images and 1 right ones: they must be pairs'),
    'depth images too few': (lambda at: (png(folder(at / 'f') / 'depth' / '0.png'), open_recording(at / 'f').depth),
                             r'/f has 2 images and 1 depth images: give each image one, in the order of names, or none to any'),
    'KITTI without P0': (lambda at: open_recording(kitti(at / 'f', 'P1: 1\n')).intrinsics,
        r'calib.txt has no P0, the projection of image_0'),
    'KITTI with eleven': (lambda at: open_recording(kitti(at / 'f', 'P0: 1 2\n')).intrinsics,
                          r'calib.txt, P0: .*; it needs the 12 numbers of the projection of image_0'),
    'KITTI raw, of another size': (lambda at: open_recording(kitti_raw(at, 'S_00: 9 9\nS_rect_00: 8 8\n')).intrinsics,
        r'calib_cam_to_cam.txt is of images of .*\(8, 8\).*, those in .*image_00 have .16, 12.: give the calibration of their day'),
    'KITTI raw, counts': (lambda at: oxts(at, {'1.txt': '49 8 0 0 0 0', '2.txt': '49 8 0 0 0 0'}),
        r'oxts has 1 stamps and 2 files of data: they must be as many'),
    'KITTI raw, no oxts': (lambda at: oxts(at, {'1.txt': '49 8 0'}),
        r'1.txt: it begins with \[49.0, 8.0, 0.0\]: latitude, longitude'),
    'KITTI raw, a folder': (lambda at: oxts(at, {'1.txt/a': ''}), r'1.txt: it cannot be read: .*directory'),
    'EuRoC without a list': (lambda at: open_recording(file(at / 'mav0' / 'cam0' / 'data' / '1.png', b'').parents[3]),
                             r'cam0/data.csv is missing: it lists the stamp in nanoseconds and the file of each image'),
    'EuRoC, stamp of words': (lambda at: open_recording(euroc(at, 'x,1.png\n')),
        r"data.csv, line 1: 'x' is not a number of nanoseconds"),
    'EuRoC, stamp too large': (lambda at: open_recording(euroc(at, f'{9 * 10**18},1.png\n')),
                               r"line 1: '9000000000000000000' is not a time in nanoseconds between 0 and"),
    'picture that is absent': (lambda at: frames(file(at / 'f' / 'rgb.txt', '1 a.png\n').parent),
        r'cannot read .*a.png: .*No such file'),
    'picture that is none': (lambda at: frames(file(file(at / 'f' / 'rgb.txt', '1 a.png\n').with_name('a.png'), 'x').parent),
                             r'a.png \(1 bytes\) is not an image, or is cut off: replace it, or delete it and its stamp'),
    'depth that is absent': (lambda at: depth_frames(at, None), r'cannot read .*d.png: .*No such file'),
    'depth that is none': (lambda at: depth_frames(at, b'x'), r'd.png \(1 bytes\) is not an image, or is cut off: replace it'),
    'picture of 32 bits': (lambda at: (cv2.imwrite(str(file(at / 'f' / 'rgb.txt', '1 a.tif\n').with_name('a.tif')),
                                                   GRAY.astype(np.float32)), frames(at / 'f')),
                           r'a.tif has samples of float32: write images of 8 or 16 bits'),
    'depth of 8 bits': (lambda at: depth_frames(at, cv2.imencode('.png', GRAY)[1].tobytes()),
                        r'd.png has 8 bits and 1 channels: depth is a gray PNG of 16 bits; write the distances themselves'),
    'no flight': (lambda at: flight.Flight(frames=0), r'0 frames of \d+x\d+ at .* Hz cannot be rendered: use at least one frame'),
    'no photograph': (lambda at: flight._photograph('nothing.png', 1.0), r'nothing.png is missing: .*; pip install scikit-image'),
    'a photograph that is none': (lambda at: flight._photograph('_registry.py', 1.0),
        r'_registry.py is not an image .*pip install --force'),
    'one frame': (lambda at: flight.forth_and_back(iter([1]), 5), r'the recording has 1 frames: .*so give one of two at least'),
}
POSES: dict[str, tuple[Callable[[Path], Any], str]] = {
    'several frames': (lambda at: truth(at, '1,0,odom,base,0,0,0,0,0,0,1\n2,0,odom,wheel,0,0,0,0,0,0,1\n'),
        r'poses.txt, line 2: poses of more frames than odom and base: record a bag of the topic, or keep these'),
    'two directions': (lambda at: truth(at, 't,p_wc_x,p_wc_y,p_wc_z,q_cw_x,q_cw_y,q_cw_z,q_cw_w\n1,0,0,0,0,0,0,1\n'),
        r'poses.txt: its columns p_wc_x, .*, q_cw_w have camera from world in one part and world from camera in the other: write'),
    'times that were rounded': (lambda at: truth(at, ''.join(f'1.6e9 {k} 0 0 0 0 0 1\n' for k in range(4))),
        r'poses.txt .*: 3 of 4 poses have the time of another one, and differ from it: their times were rounded as they were'),
    'two positions of one pose': (
        lambda at: truth(at, 't,p_a_x,p_a_y,p_a_z,p_b_x,p_b_y,p_b_z,qx,qy,qz,qw\n1,0,0,0,0,0,0,0,0,0,1\n'),
        r'poses.txt: it has the positions a, b and rotations without a word by the words in their names: keep the columns of one'),
    'a sentence of another order': (lambda at: truth(at, f'# quaternion (w, x, y, z)\n{TUM.format(1)}'),
        r"poses.txt: 'quaternion \(w, x, y, z\)' speaks of w, x, y, z, and without names .* is x, y, z, w: write one name"),
    'topic of a folder': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), topic='/x'),
                          r'/f is an image folder: it has no topic /x; name a file with poses \(--truth\)'),
    'between': (lambda at: poses_at(Trajectory(np.array([8, 10]) * 10**9, np.stack([np.eye(4)] * 2), 'poses.txt'), [9 * 10**9], 0),
        r'the ground truth is 1 s or more away from each image: poses.txt covers 8.000 to 10.000 .*; a larger value interpolates'),
    'other times': (lambda at: poses_at(Trajectory(np.array([9 * 10**9]), np.eye(4)[None], 'poses.txt'), [10**9], 0.1),
        r'does not overlap with the images: poses.txt covers 9.000 to 9.000 s, the images 1.000 .*--max-time-difference'),
    'other kind': (lambda at: truth(at, TUM.format(1), kind='bvh'),
        r"poses.txt: ground truth of kind 'bvh': it is one of tum, kitti"),
    'no such topic of poses': (lambda at: load_ground_truth(moving(at / 'b', 'cam'), topic='/x'),
        r'/b has no poses on /x. Topics of poses: /poses \(geometry_msgs/msg/TransformStamped, 3 messages\)'),
    'no such frame': (lambda at: load_ground_truth(moving(at / 'b', 'cam'), topic='/poses', child_frame='x'),
                      r'/poses has 0 sequences of poses of x. It holds: cam in map \(3 poses\)'),
    'two that move': (lambda at: load_ground_truth(moving(at / 'b', 'head', 'arm'), topic='/poses'),
                      r'/poses has 2 frames that move, name one \(--truth-child-frame\). It holds: head in map'),
    'none that is whole': (lambda at: load_ground_truth(moving(at / 'b', 'cam', unit=np.nan), topic='/poses'),
                           r'/poses holds no pose that can be read'),
    'a body alone': (lambda at: load_ground_truth(moving(at / 'b', 'body'), topic='/poses'),
                     r"poses are of body, and no /tf_static joins that to 'cam', .*\(--camera-in-body\)"),
    'two mountings': (lambda at: load_ground_truth(moving(at / 'b', 'body', mountings=[1.0, -1.0]), topic='/poses'),
        r'/tf_static have several poses of cam in body, as \[\[1.0, 0.0, 0.0, 0.0\], .* and \[\[.*: say where'),
    'a time without a unit': (lambda at: truth(at, '# timestamp, x, y, z, qx, qy, qz, qw\n2150038242,1,2,3,0,0,0,1\n'),
        r"poses.txt, line 2: '2150038242' is not a time in seconds .*: name its unit, as timestamp_ns or timestamp_us"),
    'only positions': (lambda at: truth(at, '1 2 3 4 0 0 0 0\n2 2 3 4 0 0 0 0\n'),
        r'poses.txt: the quaternions of all 2 poses are 0: it has only positions, .*name a file that has both \(--truth\)'),
    'a line of five': (lambda at: truth(at, '1 2 3 4 5\n'), r'poses.txt, line 1: 5 values: poses are 8 a line \(TUM: t tx'),
    'a line of seven': (lambda at: truth(at, '1 2 3 4 5 6 7\n', kind='tum'),
        r'poses.txt, line 1: 7 values where 8 belong \(t x y z qx'),
    'no quaternion': (lambda at: truth(at, '1 0 0 0 0.1 0.2 0.3 2\n'),
        r'poses.txt, line 1: the quaternion \[0.1, 0.2, 0.3, 2.0\] has length 2.03, not 1 .*: keep one line above the values'),
    'words': (lambda at: truth(at, '<gpx>\n'), r"poses.txt, line 1 begins with '<gpx>': poses are 8 a line"),
    'images that are not there': (lambda at: truth(at, '1 1 0 0 0 1 2 3 1 front_1.png\n'),
        r'poses.txt has the poses of images, as front_1.png, and .*/f has no image of such a name: give the folder'),
    'folder without poses': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=at),
        r' is a folder without poses: name a file, or a folder of .txt with a 4x4 matrix \(world from camera\) for each image'),
    'a JSON per image without a pose': (
        lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=file(at / 'cameras' / '1.json', '{}').parent),
        r'cameras/1.json: it has no t_00 to t_23, the pose of an image in Polycam: name a folder of such, or of matrices'),
    'frame and matrix': (lambda at: truth(at, '7 1 0 0 8 0 1 0 9 0 0 1 7\n'),
        r'poses.txt: 7 before the matrix is the number of a frame and no time, and no image has it in its name: write'),
    'seven that are no pose': (lambda at: truth(at, '0 0 0 0 0 0 1\n0 0 0 0 0 1 1\n'),
        r'poses.txt, line 2: the quaternion \[0.0, 0.0, 1.0, 1.0\] has length 1.41, not 1 \(tx ty tz qx qy qz qw\)'),
    'poses of two cameras': (lambda at: truth(at, '1 1 0 0 0 0 0 0 1 a/0.png\n\n2 1 0 0 0 0 0 0 2 b/0.png\n\n'),
        r'poses.txt has several poses of images that are called alike, in a, b: name the folder of the images as the one in it'),
    'other columns': (lambda at: truth(at, 'time,x,y,z,roll,pitch,yaw,v\n1,0,0,0,0,0,0,1\n'),
        r'poses.txt: its columns are time,x,y,z,roll,.* and a quaternion \(qx, qy, qz, qw\) are needed, rename or add them'),
    'names of no quaternion': (lambda at: truth(at, 'imgid,x,y,z,a,b,c,d\n1,0,0,0,0,0,0,1\n'),
        r'poses.txt: its columns are imgid,x,.* and a quaternion \(qx, qy, qz, qw\) are needed, rename or add them'),
    'a word for a number': (lambda at: truth(at, '1 x 0 0 0 0 0 1\n'), r"poses.txt, line 1: 'x' is no number"),
    'no direction': (lambda at: truth(at, '1 0 0 0 0 0 0 0\n'),
        r'poses.txt: the quaternion of pose 0 is \[0.0.*no direction; correct it'),
    'another XML': (lambda at: camera(at, '<?xml version="1.0"?>\n<rig/>\n'), r'c.yaml is XML, and not that of OpenCV'),
    'URDF': (lambda at: camera(at, '<?xml version="1.0"?>\n<robot name="r"/>\n'),
        r'c.yaml is a URDF, which has no lens: for --camera-in-body write T_BS into a YAML file, 16 numbers'),
    'two focal lengths': (lambda at: camera(at, {**OWN, 'K': [30, 0, 8, 0, 30, 6, 0, 0, 1]}),
        r'c.yaml: K has the focal length 30, and fx is 20: remove one'),
    'two documents': (lambda at: camera(at, 'width: 16\n---\nwidth: 17\n'), r'c.yaml holds 2 documents \(---\) that differ: keep'),
    'lens next to a camera': (lambda at: camera(at, {'camera': OWN, 'k1': 0.1}), r'c.yaml: k1: 0.1 is not read here, .*Name the'),
    'not finite': (lambda at: truth(at, '1 nan 0 0 0 0 0 1\n'), r'poses.txt: pose 0 is not finite: correct it, or remove it'),
    'KITTI, eleven': (lambda at: truth(at, '1 2 3\n', kind='kitti'), r'poses.txt, line 1: 3 values where 12 belong, a 3x4 matrix'),
    'KITTI, no rotation': (lambda at: truth(at, '2' + KITTI[1:]),
        r'poses.txt, line 1: its left 3x3 is no rotation; the rows of \[R t\]'),
    'KITTI, too few': (lambda at: truth(at, KITTI),
        r'poses.txt has 1 poses for 2 stamps: KITTI poses are one per frame \(their stamps'),
    'no file of poses': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=at / 'x.txt'),
        r'cannot read .*x.txt: .*No such'),
    'binary poses': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=file(at / 'x.bin', b'\x93NUMPY')),
        r'x.bin is no text: export it as text, with a line for each pose or stamp; of binary files only a whole images.bin'),
    'poses of NumPy': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=array(at / 'x.npy', (2, 3))),
        r'x.npy: it has numbers of the shape \(2, 3\): of .npy only poses_bounds.npy of LLFF \(N, 17\) is read.*savetxt'),
    'half an array': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=file(at / 'x.npy', b'\x93NUMPY')),
        r'x.npy: .*: name poses_bounds.npy of LLFF, or export a text'),
    'LLFF, too many': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=array(at / 'x.npy', (5, 17))),
        r'x.npy: it has 5 poses, and .*f 2 images: give the folder of all'),
    'ARKitScenes': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=file(at / 'x.traj', '1 0 0\n')),
        r'x.traj, line 1: 3 values where 7 belong, as in a .traj of ARKitScenes'),
    'Spectacular AI': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=file(at / 'x.jsonl', '{"time": 1}\n')),
        r'x.jsonl has no groundTruth with position and orientation, as data.jsonl of Spectacular AI may have'),
    'angles': (lambda at: truth(at, '#name,x,y,alt,heading,pitch,roll\n'), r'poses.txt has rotations as angles, heading,pitch'),
    'Spectacular AI, no time': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=file(
        at / 'x.jsonl', '{"groundTruth": {"position": {}, "orientation": {}}}\n')),
        r'x.jsonl, line 1: it has no time, and groundTruth needs time, position and orientation'),
    'Spectacular AI, broken': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=file(
        at / 'x.jsonl', '{"groundTruth": null}\n')), r'x.jsonl, line 1: its groundTruth is broken \(.*NoneType'),
    'poses of two topics': (lambda at: truth(at, 't,' + ','.join(
        f'{topic}.{axis}' for topic in 'ab' for axis in ('p.x', 'p.y', 'p.z', 'q.x', 'q.y', 'q.z', 'q.w')) + f'\n{"1," * 14}1\n'),
        r'poses.txt: it has the poses of a, b: keep the columns of one'),
    'a bag of poses': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=file(at / 'x.mcap', '')),
        r'x.mcap is a bag: its poses are read where it has the images too \(--truth-topic\). Else play it'),
    'nuScenes, broken': (lambda at: load_ground_truth(open_recording(folder(at / 'f')), file=file(
        at / 'x.json', '[{"timestamp": 1, "translation": [1, 2, 3], "rotation": 1, "token": "a"}]')),
        r'x.json: each entry of nuScenes has timestamp, translation, rotation, and one is broken \(.*int'),
    'OpenMVG, no poses': (lambda at: truth(at, '{"sfm_data_version": "0.3"}'),
        r'poses.txt: it is of OpenMVG, and an entry has no extrinsics: export it anew'),
    'OpenSfM, a number for shots': (lambda at: truth(at, '[{"shots": 1}]'),
        r'poses.txt: it is of OpenSfM, and broken \(.*int.*\): export it anew'),
    'OCamCalib, no polynomial': (lambda at: camera(at, {
        'model_type': 'scaramuzza', 'image_width': 16, 'image_height': 12, 'poly_parameters': {},
        'affine_parameters': {'ac': 1, 'ad': 0, 'ae': 0, 'cx': 8, 'cy': 6}}),
        r'c.yaml, cam0: its ocamcalib has no coefficients: take the file anew'),
    'nested without end': (lambda at: camera(at, 'k: &a [*a]\n'), r'c.yaml: k: its lists and mappings are nested more than 50'),
    'KITTI, one side of an image': (lambda at: camera(at, 'P_rect_02: 700 0 600 0 0 700 180 0 0 0 1 0\nS_rect_02: 1242\n'),
        r'c.yaml: S_02 has \[\] and S_rect_02 \[1242\], where width and height belong: take the file anew'),
    'OpenSfM, two parts': (lambda at: truth(at, '[{"shots": {"a": 0}}, {"shots": {}}]'),
        r'poses.txt has 2 reconstructions, of 1, 0 images, which no pose joins: leave one in it'),
    'OCamCalib': (lambda at: load_intrinsics(file(at / 'c.txt', '#polynomial coefficients for the DIRECT\n1 2\n')),
        r'c.txt: it has lines of \[2\] numbers, and calib_results.txt of OCamCalib two'),
    'rotated rows': (lambda at: camera(at, {'MappingCoefficients': [20.0, 0, 0, 0], 'ImageSize': [12, 16],
                                           'DistortionCenter': [8, 6], 'StretchMatrix': [[1, 0], [0.1, 1]]}),
        r'c.yaml, cam0: its rows and columns are .*, rotated by 5.7 degrees: give the calibration'),
    'no pose': (lambda at: truth(at, '# nothing\n', kind='tum'), r'poses.txt holds no pose: one a line is needed'),
}
TABLES = {'bags': BAGS, 'calibrations': CALIBRATIONS, 'folders': FOLDERS, 'poses': POSES}
CASES = {f'{table}, {name}': each for table, rows in TABLES.items() for name, each in rows.items()}
CAUGHT = {  # raises that reach nobody, and why
    'there is no summary': 'the file is read without its summary', 'there are messages in the summary': 'likewise',
    'the summary counts no messages': 'likewise', 'the summary is not whole': 'likewise',
    'rows are missing': 'what stands behind them is read (test_a_page_that_is_gone)'}


def array(path: Path, shape: tuple[int, int]) -> Path:
    np.save(path, np.zeros(shape))
    return path


def kitti_raw(at: Path, calibration: str = '') -> Path:
    png(at / 'd' / 'drive' / 'image_00' / 'data' / '1.png')
    file(at / 'd' / 'drive' / 'image_00' / 'timestamps.txt', '2011-09-26 13:02:25.1\n')
    if calibration:
        file(at / 'd' / 'calib_cam_to_cam.txt', calibration)
    return at / 'd' / 'drive'


def oxts(at: Path, files: dict[str, str]) -> Any:
    """The ground truth of one image by these files."""
    drive = kitti_raw(at)
    file(drive / 'oxts' / 'timestamps.txt', '2011-09-26 13:02:25.1\n')
    for name, text in files.items():
        file(drive / 'oxts' / 'data' / name, text)
    return load_ground_truth(open_recording(drive), camera_in_body=np.eye(4))


def euroc(at: Path, rows: str) -> Path:
    png(at / 'mav0' / 'cam0' / 'data' / '1.png')
    file(at / 'mav0' / 'cam0' / 'data.csv', rows)
    return at


def depth_frames(at: Path, content: bytes | None) -> list[Any]:
    """Of a folder of TUM with one depth image."""
    png(file(at / 'f' / 'rgb.txt', '1 a.png\n').with_name('a.png'))
    file(at / 'f' / 'depth.txt', '1 d.png\n')
    if content is not None:
        file(at / 'f' / 'd.png', content)
    return [frame.load() for frame in depth_of(open_recording(at / 'f')).frames()]


def error_of(name: str, at: Path) -> LightglueTrtError:
    with pytest.raises(LightglueTrtError) as raised:
        CASES[name][0](at)
    return raised.value


@pytest.mark.parametrize('name', CASES)
def test_an_error_says_where_what_was_found_and_what_is_needed(name: str, tmp_path: Path) -> None:
    error = str(error_of(name, tmp_path))
    assert re.search(CASES[name][1], error), error
    assert len(error.splitlines()) <= 2
    assert not re.search(r'Traceback|0x[0-9a-f]{6}|<[a-z_.]+ object', error)


def raises() -> dict[tuple[str, int, int], str]:
    """Each `raise` of datasets/ with an error of its own: file and first and last line, and its source."""
    found = {}
    for path in sorted(PACKAGE.glob('*.py')):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                found[path.name, node.lineno, node.end_lineno or node.lineno] = ast.unparse(node)
    return found


def own_words(source: str) -> str:
    """The longest text in a `raise`: it tells that an error was reached whose words went into another one."""
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return max(texts, key=len, default='') if any(len(text) > 9 for text in texts) else source


def places(error: BaseException | None) -> Iterator[tuple[str, int]]:
    """Files and lines of an error, of those that it replaced, and of those before them."""
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            yield Path(trace.tb_frame.f_code.co_filename).name, trace.tb_lineno
            trace = trace.tb_next
        error = error.__cause__ or error.__context__


def test_the_table_has_every_error(tmp_path: Path) -> None:
    reached, lines = set(), list[str]()
    for number, name in enumerate(CASES):
        (tmp_path / str(number)).mkdir()
        error = error_of(name, tmp_path / str(number))
        reached |= set(places(error))
        lines.append(str(error))
    missing = {place: source for place, source in raises().items()
               if not any(name == place[0] and place[1] <= line <= place[2] for name, line in reached)
               and not any(words in source for words in CAUGHT) and not any(own_words(source) in line for line in lines)}
    assert not missing, '\n'.join(f'{file}:{first}: {source}' for (file, first, _), source in missing.items())
