"""The command line"""
