"""Level 0: what an operator is, operators of one's own, and checks of them"""
