"""Meshes: replicas of a network over agents, in stages and parts, and who computes what"""
