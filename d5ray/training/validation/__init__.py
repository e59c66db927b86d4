"""Checks of update rules and trainings against whole trajectories"""
