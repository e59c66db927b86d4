"""Where windows and interpolation read"""
