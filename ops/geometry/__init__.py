"""The elements that windows and interpolation read"""
