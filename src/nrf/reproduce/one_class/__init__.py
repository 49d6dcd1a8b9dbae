"""One-class images."""
