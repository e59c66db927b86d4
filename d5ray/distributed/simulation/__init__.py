"""The simulated world: agents as tasks on a virtual clock, links that cost latency and bandwidth"""
