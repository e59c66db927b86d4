"""Layers as data, and the Network that a chain of them becomes"""
