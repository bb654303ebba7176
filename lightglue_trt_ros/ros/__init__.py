"""Everything that speaks ROS."""
