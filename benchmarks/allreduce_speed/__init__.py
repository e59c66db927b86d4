"""How quickly agents sum arrays: d5ray's shared memory and sockets against torch.distributed and OpenMPI."""
