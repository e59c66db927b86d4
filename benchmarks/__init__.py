"""What measures d5ray itself: a folder each, with the recipe, its job, and what it is compared with."""
