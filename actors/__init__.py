"""Everything Ray: training agents, the metrics aggregator, the coordinator, and what launches them."""
