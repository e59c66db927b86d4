"""Questions to runs, in SQL: on this machine, elsewhere, in a process that serves them."""
