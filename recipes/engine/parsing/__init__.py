"""The values of the keys of a recipe: what is fixed, set, and will be measured"""
