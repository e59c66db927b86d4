"""Dashboards and alerts for Grafana and Prometheus"""
