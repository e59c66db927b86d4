"""Level 1: networks as graphs, what executes them, and how they are cut and split"""
