"""The distributed optimizers, one idea a file: a docstring with the formula, a `step` that reads like it"""
