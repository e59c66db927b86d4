"""Collectives made of messages between two members, for backends that have no others"""
