"""Requests between two processes without a group: over a socket, arrays in shared memory on one node"""
