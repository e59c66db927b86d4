"""Public names: where they stand, and where those of Deep500 went"""
