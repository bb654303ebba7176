"""A frame becomes correspondences. It needs only NumPy and OpenCV; nothing here knows ROS or a GPU."""
