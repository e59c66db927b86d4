"""Faults by plan: what happens to whom and when, as data"""
