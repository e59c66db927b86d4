"""Text for people: on a terminal, in a notebook, with nothing hidden in it"""
