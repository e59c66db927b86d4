"""Public names: their namespaces, how one is found, and where those of Deep500 went"""
