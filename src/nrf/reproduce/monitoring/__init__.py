"""Drift monitors: false alarms of streams that do not change, delays of those that do."""
