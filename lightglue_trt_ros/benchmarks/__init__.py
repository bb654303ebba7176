"""What `ros2 run lightglue_trt_ros benchmark` measures: one file per question."""
