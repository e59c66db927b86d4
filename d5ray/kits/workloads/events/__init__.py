"""Events that measure qualities of single fields"""
