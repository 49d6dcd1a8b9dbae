"""Training a preset, and what has been trained."""
