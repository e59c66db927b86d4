"""Probes: what the machine, its processes and its energy counters say while a run goes on"""
