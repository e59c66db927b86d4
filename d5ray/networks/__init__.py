"""Level 1: networks, and what executes them."""
