"""A training step of LeNet: d5ray's agents against DistributedDataParallel and Ray Train, side by side."""
