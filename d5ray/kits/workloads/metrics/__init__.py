"""Metrics of qualities of single fields"""
