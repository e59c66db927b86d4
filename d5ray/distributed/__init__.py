"""Level 3: topologies, communicators, distributed optimizers."""
