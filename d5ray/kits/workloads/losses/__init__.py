"""Losses of single fields"""
