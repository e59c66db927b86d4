"""Executors: the interfaces that frameworks fill, the plan of a pass, and checks of what is given"""
