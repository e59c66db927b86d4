"""Contenders side by side: what they are, their turns in fresh processes, and how their calls are timed."""
