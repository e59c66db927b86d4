"""The training agent, without Ray: its loop, what a step records, its ties to the others"""
