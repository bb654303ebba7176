"""The two networks, written as ONNX graphs (opset 17) straight from their weights, for fixed shapes and one precision."""
