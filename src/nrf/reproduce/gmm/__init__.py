"""The 32-mode mixture."""
