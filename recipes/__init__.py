"""Recipes: FIXED + MUTABLE + METRICS give a verdict. One file each; `engine` runs them."""
