"""Checkpoints: the whole state of an agent as arrays and JSON, on any file system, and back bit for bit"""
