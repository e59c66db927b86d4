"""Communication of the agents of one node through memory that their processes share"""
