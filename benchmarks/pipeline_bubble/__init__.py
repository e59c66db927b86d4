"""The bubble of pipelines beside its formula: 2 to 4 stages, 4 to 16 micro-batches, every schedule."""
