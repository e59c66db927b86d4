"""The experiment that a run keeps, as data without code wherever that can be"""
