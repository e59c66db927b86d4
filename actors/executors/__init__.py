"""Operator executors: actors that compute operators, or pieces of a network"""
