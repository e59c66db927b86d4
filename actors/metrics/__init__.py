"""Actors that take what is measured, and what shows and asks it while a run goes on"""
