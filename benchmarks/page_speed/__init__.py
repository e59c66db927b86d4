"""How long a viewer of the live page waits, with ten million rows: the first view, and every change."""
