"""Failures that nobody foresaw: one line for people, the traceback in a file, and the exit code"""
