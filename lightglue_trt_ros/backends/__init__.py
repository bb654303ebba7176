"""Backends, which run the networks: ONNX Runtime, and TensorRT on CUDA."""
