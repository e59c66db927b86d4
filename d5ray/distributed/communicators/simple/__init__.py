"""Communicators without a network: of one agent, of one that is absent, and the oracle in threads"""
