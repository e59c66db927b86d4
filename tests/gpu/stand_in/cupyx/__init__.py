"""`cupyx`, over SciPy"""
