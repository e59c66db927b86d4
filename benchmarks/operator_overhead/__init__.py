"""What a call of an operator through d5ray costs: PyTorch's own functions beside it, at DeepBench's sizes."""
