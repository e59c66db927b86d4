"""One-sided exchanges: agents that read and write each other without waiting"""
