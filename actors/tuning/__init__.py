"""Ray Tune: the processes of its trials, and the search"""
