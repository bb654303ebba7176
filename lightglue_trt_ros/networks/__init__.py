"""Weights, and the ONNX graphs of SuperPoint and LightGlue."""
