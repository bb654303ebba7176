"""Keyframes of a camera for whoever maps: ~/keyframe, and the service ~/match_keyframes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rcl_interfaces.msg import ParameterType, ParameterValue
from rcl_interfaces.srv import GetParameters
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import PointCloud2, PointField

from ...core.keyframes import Keyframe
from ...core.types import FrameMatches
from ...utils.errors import LightglueTrtError
from ..camera_info import camera_topic
from ..clouds import KEYFRAME_DTYPE, fill_keyframe, point_fields

FIELDS = point_fields(PointField, KEYFRAME_DTYPE)
COLUMNS = 'u_ref', 'v_ref', 'u', 'v', 'score', 'cov_uu', 'cov_uv', 'cov_vv', 'x', 'y', 'z', 'sigma_z'  # of an answer, in this order


class KeyframeTopics:
    """Publishes keyframes, and answers which points two of them share."""

    def __init__(self, node: LifecycleNode, camera: str, matches_between: Callable[[float, float], FrameMatches]) -> None:
        """`matches_between` takes the stamps of two keyframes; it may raise a LightglueTrtError."""
        self._node, self._matches_between = node, matches_between
        self._keyframes = node.create_lifecycle_publisher(PointCloud2, camera_topic(camera, '~/keyframe'), 10)
        self._service = node.create_service(GetParameters, camera_topic(camera, '~/match_keyframes'), self._on_request)

    def close(self) -> None:
        self._node.destroy_service(self._service)
        self._node.destroy_lifecycle_publisher(self._keyframes)

    def publish(self, header: Any, keyframe: Keyframe, least_score: float) -> None:
        self._keyframes.publish(fill_keyframe(PointCloud2(header=header, fields=FIELDS), keyframe, least_score))

    def _on_request(self, request: GetParameters.Request, response: GetParameters.Response) -> GetParameters.Response:
        """Names are two stamps in seconds, 12.345000000; the answer is a value for each of COLUMNS, or one string with an error.

        It is a service of a standard type: a package of Python cannot define its own.
        """
        try:
            reference, current = map(float, request.names)
            matches = self._matches_between(reference, current)
        except ValueError:
            response.values = [_text(f'names are {list(request.names)}: give the stamps of two keyframes, in seconds')]
        except LightglueTrtError as error:
            response.values = [_text(str(error))]
        else:
            covariances = matches.covariances.reshape(-1, 4)[:, [0, 1, 3]]
            located = matches if matches.xyz is not None else matches.without_depth()
            columns: list[Any] = [located.reference_keypoints, located.keypoints, located.scores, covariances, located.xyz,
                                  located.sigma_z]
            response.values = [ParameterValue(type=ParameterType.PARAMETER_DOUBLE_ARRAY, double_array_value=column)
                               for column in np.column_stack(columns).T.tolist()]
        return response


def _text(words: str) -> ParameterValue:
    return ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=words)
