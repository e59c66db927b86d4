"""Communicators: how agents exchange arrays, by shared memory, sockets, NCCL, or nodes and groups of nodes"""
