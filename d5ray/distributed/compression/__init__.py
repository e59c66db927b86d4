"""Gradient compression: what is sent instead of a vector, and how the agents' mean is formed from it"""
