"""Tables and reports in a terminal"""
