"""Events of a network's execution, before and after each operator, and what they measure"""
