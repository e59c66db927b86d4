"""Runs that nobody sits beside: left to themselves, and started again where Ray or they die"""
