"""What it costs that Ray's metrics show a run: agents train with the exporter and without it, in turn."""
