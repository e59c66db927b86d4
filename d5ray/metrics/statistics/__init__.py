"""Statistics that assume no distribution: intervals, dependence in time, when to stop"""
