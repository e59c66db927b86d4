"""Checks that all members of a group make the same call: signatures, and a watch on long waits"""
