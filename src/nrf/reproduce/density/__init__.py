"""Fields beside densities that are known."""
