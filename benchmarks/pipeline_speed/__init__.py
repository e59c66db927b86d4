"""A training step of a transformer in two stages on two cores, beside one agent on one core."""
