"""The metrics of d5ray, one subject a file, and the catalogue of them by name"""
