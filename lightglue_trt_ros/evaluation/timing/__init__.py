"""Time of each stage, and of the GPU alone."""
