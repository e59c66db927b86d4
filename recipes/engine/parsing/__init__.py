"""From the keys of a recipe to values: what is fixed, set, and will be measured"""
