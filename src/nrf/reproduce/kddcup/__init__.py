"""Anomaly detection on KDDCUP."""
