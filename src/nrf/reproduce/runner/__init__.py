"""What runs an experiment: cells, records, report pages."""
