"""Collectives and messages over gloo: headers first, so that no wait is in vain"""
