"""The operator catalogue: for each ONNX operator its shapes, and its forward and backward per framework."""
