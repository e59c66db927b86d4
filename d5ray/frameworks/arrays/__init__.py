"""One executor for NumPy and CuPy: operators over an array module, differentiated in reverse"""
