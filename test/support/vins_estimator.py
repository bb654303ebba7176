"""An estimator as VINS-Mono and VINS-Fusion have it: it reads ~/feature and ~/restart."""

from __future__ import annotations

import numpy as np
from sensor_msgs.msg import PointCloud
from std_msgs.msg import Bool
from support.ros_helpers import Peer


class Estimator:
    """Reads ~/feature as feature_callback and process() of VINS-Mono (5 channels) and VINS-Fusion (9) do, and asserts the same."""

    def __init__(self, peer: Peer, number_of_cameras: int = 1) -> None:
        self.number_of_cameras = number_of_cameras
        self.frames: list[tuple[float, dict[int, np.ndarray]]] = []  # stamp; x, y, z, u, v, vx, vy by id
        self.rights: list[dict[int, np.ndarray]] = []  # by frame, the same of camera 1: second observations, VINS-Fusion's alone
        self.restarts: list[bool] = []
        self.sizes: set[int] = set()
        peer.node.create_subscription(PointCloud, '/matcher/feature', self.on_feature, 2000)
        peer.node.create_subscription(Bool, '/matcher/restart', lambda message: self.restarts.append(message.data), 2000)

    def on_feature(self, message: PointCloud) -> None:
        found: dict[int, np.ndarray] = {}
        rights: dict[int, np.ndarray] = {}
        self.sizes.add(len(message.channels))
        for i, point in enumerate(message.points):
            values = [channel.values[i] for channel in message.channels]
            if len(values) == 5:
                number, camera = divmod(int(values[0] + 0.5), self.number_of_cameras)
                u, v, vx, vy = values[1:]
            else:
                number, camera = int(values[0]), int(values[1])
                u, v, vx, vy = values[2:6]
                assert values[6:] == [0, 0, 0], 'read for gx, gy, gz where there are more than five'
            assert point.z == 1
            assert camera == (number in found), 'feature_manager: of an id the first observation is of camera 0, the second of 1'
            assert number not in rights
            (rights if camera else found)[number] = np.array([point.x, point.y, point.z, u, v, vx, vy])
        self.rights.append(rights)
        self.frames.append((message.header.stamp.sec + message.header.stamp.nanosec * 1e-9, found))

    def check_tracks(self) -> int:
        """Observations of an id are taken for consecutive frames: none may come back after a gap. The longest, in frames."""
        last: dict[int, int] = {}
        length: dict[int, int] = {}
        for index, (_, found) in enumerate(self.frames):
            for number in found:
                assert last.get(number, index - 1) == index - 1
                last[number], length[number] = index, length.get(number, 0) + 1
        return max(length.values(), default=0)
