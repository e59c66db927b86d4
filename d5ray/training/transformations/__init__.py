"""Transformations of a batch's samples before the step: crops, flips, normalization and their like"""
