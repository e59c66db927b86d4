"""Metrics of contenders, of calls, of scaling, and of trainings and simulations that are compared"""
