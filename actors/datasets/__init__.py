"""Data sets of Ray Data, whose rows are streamed to the agents"""
