"""How long a report takes: one page about ten finished runs, by the command that people use."""
