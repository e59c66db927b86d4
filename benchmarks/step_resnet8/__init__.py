"""A training step of ResNet-8: d5ray's agents against DistributedDataParallel and Ray Train, side by side."""
