"""Runs for other programs: CSV, benchmarker's schema, TensorBoard, MLflow, Prometheus"""
