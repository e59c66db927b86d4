"""What a call of an operator through d5ray costs under TensorFlow: its own functions beside it."""
