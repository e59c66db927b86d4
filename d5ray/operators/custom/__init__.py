"""Operators of one's own, in Python and in C++, and their registry"""
