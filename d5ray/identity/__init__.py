"""What identifies a part of an experiment: its canonical description and hash, its sources, its names."""
