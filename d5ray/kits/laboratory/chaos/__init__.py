"""Chaos: seeded trials of a recipe under faults, each judged by what the run promised"""
