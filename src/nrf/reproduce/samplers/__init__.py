"""The study of samplers on Gaussians."""
