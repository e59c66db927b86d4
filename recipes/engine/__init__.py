"""The engine that runs recipes: from FIXED, MUTABLE and METRICS to a run's folder with a verdict."""
