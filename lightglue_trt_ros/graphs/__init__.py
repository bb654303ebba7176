"""The two networks as ONNX graphs (opset 17, 21 with FP8), straight from their weights, for fixed shapes and one precision."""
