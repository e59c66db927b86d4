"""A run's agents as a group: how it starts, trains, survives faults and ends"""
