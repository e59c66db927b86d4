"""The search for good settings of a recipe: its space, its trials, and the verdict on the best"""
