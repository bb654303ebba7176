"""From typed ONNX graphs to TensorRT engines that this machine may trust: adapter, policy, engine set, acceptance check."""
