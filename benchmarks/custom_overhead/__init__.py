"""What a custom operator costs, in Python and in C++: PyTorch's own function of the same beside it."""
