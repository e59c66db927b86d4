"""Runs that are repeated: with other seeds, from a folder, bit for bit"""
