"""Whether all members of a group call the same: signatures of calls, and a watch on long waits"""
