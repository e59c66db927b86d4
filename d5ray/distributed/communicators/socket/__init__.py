"""Agents on one node or several, over sockets of their own"""
