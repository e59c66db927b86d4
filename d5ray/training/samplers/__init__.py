"""Samplers: the order of an epoch's samples, which of them each agent gets, and checks of that"""
