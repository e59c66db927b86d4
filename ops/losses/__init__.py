"""Losses: what turns outputs and targets into one number, in every framework"""
