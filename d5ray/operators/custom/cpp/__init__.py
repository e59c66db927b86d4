"""Operators of one's own in C++: built by the machine's compiler, kept, called"""
