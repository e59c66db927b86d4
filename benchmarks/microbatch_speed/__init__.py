"""What a training step costs that has a quarter of its memory: ResNet-50 in micro-batches and as a whole."""
