"""The agents of a simulated run: in this process, on a virtual clock, with what happens to them by plan"""
