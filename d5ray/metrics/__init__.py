"""What is measured: definitions, Arrow schema, statistics, recording, storage, queries, environment."""
