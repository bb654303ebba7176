#!/usr/bin/env python3
"""Loop closures of a camera with depth. Start the matcher with keyframes:=50 depth:=true, then: python3 loop_closure.py

Each keyframe is compared with the earlier ones by descriptors. The matcher matches it with the most similar one, PnP locates it.
"""
from contextlib import suppress

import cv2
import numpy as np
import rclpy
from rcl_interfaces.srv import GetParameters
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import CameraInfo, PointCloud2

from lightglue_trt_ros import Intrinsics

KEPT, APART, SIMILAR, LEAST = 50, 3, 0.2, 30  # keyframes; keyframes between both ends of a loop; share of keypoints; points


class LoopClosure(Node):
    def __init__(self):
        super().__init__('loop_closure')
        self.places, self.camera = [], None  # (stamp, descriptors (K, 256)) of each keyframe
        kept = QoSProfile(depth=KEPT, durability=DurabilityPolicy.TRANSIENT_LOCAL)  # also those that came before this node
        self.create_subscription(CameraInfo, 'camera_info', lambda message: setattr(self, 'camera', message), 10)
        self.create_subscription(PointCloud2, 'matcher/keyframe', self.on_keyframe, kept)
        self.client = self.create_client(GetParameters, 'matcher/match_keyframes')

    def on_keyframe(self, cloud):
        start = next(field.offset for field in cloud.fields if field.name == 'descriptor')
        points = np.frombuffer(cloud.data, np.uint8).reshape(-1, cloud.point_step)[:, start:start + 512]
        descriptors = points.copy().view(np.float16).astype(np.float32)
        stamp = f'{cloud.header.stamp.sec}.{cloud.header.stamp.nanosec:09d}'
        similar = [(self.similarity(descriptors, other), earlier) for earlier, other in self.places[:-APART]]
        self.places = [*self.places[1 - KEPT:], (stamp, descriptors)]
        if similar and max(similar)[0] > SIMILAR:
            names = [max(similar)[1], stamp]  # the first one is the reference
            answer = self.client.call_async(GetParameters.Request(names=names))
            answer.add_done_callback(lambda done: self.on_matches(*names, done.result().values))

    def similarity(self, descriptors, others):
        products = descriptors @ others.T
        return float(np.mean(products.argmax(0)[products.argmax(1)] == np.arange(len(products))))  # mutual nearest neighbours

    def on_matches(self, earlier, stamp, values):
        if len(values) == 1 or self.camera is None:
            return self.get_logger().warning(values[0].string_value or 'no CameraInfo yet: remap camera_info')
        u_ref, v_ref, _, _, _, _, _, _, *xyz, _ = (np.array(value.double_array_value) for value in values)
        info, k = self.camera, np.reshape(self.camera.k, (3, 3))
        lens = Intrinsics(info.width, info.height, k, info.distortion_model, info.d).lens  # of any model that the matcher takes
        points, pixels = np.column_stack(xyz), lens.undistorted(np.column_stack([u_ref, v_ref])).points
        known = np.isfinite(np.hstack([points, pixels])).all(axis=1)  # x, y, z are of the second keyframe
        if np.count_nonzero(known) >= LEAST:
            found, rotation, shift, inliers = cv2.solvePnPRansac(points[known], pixels[known], k, None, reprojectionError=3.0)
            if found and len(inliers) >= LEAST:
                place, angle = np.round(shift.ravel(), 3).tolist(), np.degrees(np.linalg.norm(rotation))
                self.get_logger().info(f'loop: {stamp} is at {place} m, {angle:.2f} degrees from {earlier}, {len(inliers)} points')


if __name__ == '__main__':
    rclpy.init()
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(LoopClosure())
