"""Checks of operators: outputs, gradients, repeatability, and reports on them"""
