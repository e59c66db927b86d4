"""An ONNX graph as plain data, and what reads, checks and writes it."""
