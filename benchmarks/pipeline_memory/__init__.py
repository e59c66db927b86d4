"""A network that does not fit into the memory of one executor trains over three, each with part of it."""
