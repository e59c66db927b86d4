"""Nodes: one application of an operator, with all that is known of it, and the kernel that runs it"""
