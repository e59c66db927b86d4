"""Connections between processes of a run: both ends proved, plain within a machine, TLS 1.3 beyond it"""
