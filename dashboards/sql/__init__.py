"""The SQL shell, and the formats of its answers"""
