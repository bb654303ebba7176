"""SuperPoint + LightGlue correspondences for ROS 2: each frame extracted once, matched against its reference."""

__version__ = '0.1.0'
