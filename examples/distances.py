"""Prints how far the points of each frame are: python3 distances.py, next to a matcher with depth or a stereo pair."""

from contextlib import suppress

import numpy as np
import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2

from lightglue_trt_ros import matches_from_cloud


class Distances(Node):
    def __init__(self):
        super().__init__('distances')
        self.create_subscription(PointCloud2, 'matcher/matches', self.on_matches, 10)

    def on_matches(self, cloud):
        xyz = matches_from_cloud(cloud).xyz
        if xyz is not None and np.isfinite(xyz).any():
            print(f'nearest point {np.nanmin(xyz[:, 2]):.2f} m, median {np.nanmedian(xyz[:, 2]):.2f} m')


if __name__ == '__main__':
    rclpy.init()
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(Distances())
