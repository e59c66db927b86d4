"""Which elements windows and interpolations read"""
