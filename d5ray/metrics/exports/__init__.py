"""Runs for other programs: tables as CSV, one JSON document, benchmarker's schema, TensorBoard, MLflow"""
