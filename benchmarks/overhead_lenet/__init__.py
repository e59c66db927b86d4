"""What d5ray costs: its agents against the same training in plain PyTorch, side by side."""
