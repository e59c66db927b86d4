"""`cupyx.scipy`"""
