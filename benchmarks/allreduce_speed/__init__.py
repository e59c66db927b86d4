"""How quickly agents sum arrays: d5ray's shared memory and gloo against torch.distributed and OpenMPI."""
