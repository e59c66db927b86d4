"""Level 2: data sets, samplers, optimizers."""
