"""What ROS 2 alone can import."""

from __future__ import annotations

ROS = {'rclpy', 'sensor_msgs', 'std_msgs', 'std_srvs', 'diagnostic_msgs', 'geometry_msgs', 'rcl_interfaces', 'lifecycle_msgs',
       'nav_msgs', 'tf2_msgs', 'builtin_interfaces', 'launch', 'launch_ros', 'ament_index_python'}
