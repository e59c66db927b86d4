"""One operator divided over several executors: a network's parts, and the collectives between them"""
