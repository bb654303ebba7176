"""What runs the networks: ONNX Runtime, and TensorRT on CUDA."""
