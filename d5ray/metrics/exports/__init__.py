"""Runs for other programs: CSV, JSON, benchmarker's schema, TensorBoard, MLflow, Prometheus"""
