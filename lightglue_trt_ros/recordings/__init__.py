"""Recordings: rosbag2 and image folders, with intrinsics and ground truth."""
