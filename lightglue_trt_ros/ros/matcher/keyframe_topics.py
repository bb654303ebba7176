"""Keyframes of a camera for whoever maps: ~/keyframe, and the service ~/match_keyframes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from rcl_interfaces.msg import ParameterType, ParameterValue
from rcl_interfaces.srv import GetParameters
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import PointCloud2, PointField

from ...core.keyframes import Keyframe
from ...core.types import FrameMatches
from ...utils.errors import FrameError, LightglueTrtError, in_words
from ..camera_info import camera_topic
from ..clouds import KEYFRAME_DTYPE, fill_keyframe, point_fields
from ..executor import awaited
from ..fading_log import FadingLog
from ..qos import OVERRIDABLE

FIELDS = point_fields(PointField, KEYFRAME_DTYPE)
COLUMNS = 'u_ref', 'v_ref', 'u', 'v', 'score', 'cov_uu', 'cov_uv', 'cov_vv', 'x', 'y', 'z', 'sigma_z'  # of an answer, in this order


class KeyframeTopics:
    """Publishes keyframes, and answers which points two of them share."""

    def __init__(self, node: LifecycleNode, camera: str, log: Any, count: int,
                 matches_between: Callable[[float, float], Future[FrameMatches]]) -> None:
        """`matches_between` takes the stamps of two keyframes; it and its answer may raise any error. `count` are kept."""
        self._node, self._log, self._matches_between = node, log, matches_between
        kept = QoSProfile(depth=count, durability=DurabilityPolicy.TRANSIENT_LOCAL)  # reliable, also for who comes later
        self._keyframes = node.create_lifecycle_publisher(PointCloud2, camera_topic(camera, '~/keyframe'), kept,
                                                             qos_overriding_options=OVERRIDABLE)
        self._service = node.create_service(GetParameters, camera_topic(camera, '~/match_keyframes'), self._on_request,
                                            callback_group=ReentrantCallbackGroup())
        self._waiting, self._closed = 0, False
        self._failures = FadingLog()

    def close(self) -> None:
        """Undo what the constructor did, once the requests that still wait are answered."""
        self._closed = True
        self._node.destroy_lifecycle_publisher(self._keyframes)
        if not self._waiting:
            self._node.destroy_service(self._service)

    def publish(self, header: Any, keyframe: Keyframe, least_score: float) -> None:
        self._keyframes.publish(fill_keyframe(PointCloud2(header=header, fields=FIELDS), keyframe, least_score))

    async def _on_request(self, request: GetParameters.Request, response: GetParameters.Response) -> GetParameters.Response:
        """Names are two stamps in seconds, 12.345000000; the answer is a value for each of COLUMNS, or one string with an error.

        It is a service of a standard type: a package of Python cannot define its own.
        """
        self._waiting += 1
        try:
            response.values = _columns(await awaited(self._matches_between(*_stamps(request.names)), self._node))
        except Exception as error:
            words = str(error)
            if not isinstance(error, LightglueTrtError):
                words = f'matching two keyframes failed, {in_words(error)}'
                if self._failures.due(words):
                    self._log.error(words)
            response.values = [ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=words)]
        self._waiting -= 1
        if self._closed and not self._waiting:  # rclpy sends the response first
            self._node.executor.create_task(self._node.destroy_service, self._service)
        return response


def _stamps(names: Sequence[str]) -> tuple[float, float]:
    """Seconds. Raises FrameError."""
    try:
        reference, current = map(float, names)
    except ValueError:
        given = f'{names[:2]}' if len(names) < 3 else f'{len(names)}, {names[:2]} and more'
        raise FrameError(f'names are {given[:200]}: give the stamps of two keyframes, in seconds') from None
    return reference, current


def _columns(matches: FrameMatches) -> list[ParameterValue]:
    covariances = matches.covariances.reshape(-1, 4)[:, [0, 1, 3]]
    located = matches if matches.xyz is not None else matches.without_depth()
    columns: list[Any] = [located.reference_keypoints, located.keypoints, located.scores, covariances, located.xyz, located.sigma_z]
    return [ParameterValue(type=ParameterType.PARAMETER_DOUBLE_ARRAY, double_array_value=column)
            for column in np.column_stack(columns).T.tolist()]
