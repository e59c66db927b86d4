"""The identity of an experiment's parts: canonical description and hash, sources, names"""
