"""Verdicts: criteria, comparisons of runs, series of runs"""
