"""Communicators: how agents exchange arrays, by shared memory, gloo, NCCL, or nodes and groups of nodes"""
