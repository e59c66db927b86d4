"""Kits around the core: each sees the core's names, and could be deleted without it

A kit is a package here. Its `BRINGS` says what it adds to catalogues of the core: see `d5ray.names.kits`.
"""
