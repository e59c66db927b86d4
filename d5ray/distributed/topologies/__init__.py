"""Topologies, their mixing weights, what algorithms need of them, and how fast they average."""
