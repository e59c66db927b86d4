"""Readers of data of single fields"""
