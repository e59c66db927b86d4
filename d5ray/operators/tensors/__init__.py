"""Descriptors of tensors: type and shape, and whether a tensor fits"""
