"""A run's timeline as a trace for Perfetto and Chrome: what every agent and server did when, and for whom"""
