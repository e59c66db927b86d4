"""The live page: a run in a browser, while it goes on and afterwards"""
