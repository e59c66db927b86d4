"""Dashboards: everything that people look at, in the terminal and in a browser"""
