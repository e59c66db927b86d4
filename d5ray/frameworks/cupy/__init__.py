"""CuPy and NCCL; importing this imports neither"""
