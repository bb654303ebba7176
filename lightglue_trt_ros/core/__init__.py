"""A frame becomes correspondences. NumPy and OpenCV alone; nothing here knows ROS or a GPU."""
