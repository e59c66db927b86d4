"""Recipes: FIXED + MUTABLE + METRICS give a verdict. One file each; `recipe` runs them."""
