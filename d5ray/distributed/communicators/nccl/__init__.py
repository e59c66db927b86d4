"""Collectives and messages between GPUs, over NCCL"""
