"""What d5ray's executor of a network costs under PyTorch: the model written by hand beside it."""
