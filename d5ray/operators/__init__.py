"""Level 0: what an operator is."""
