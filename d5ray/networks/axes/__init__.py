"""Axes through operators: where each axis of what a node reads is in what it makes"""
