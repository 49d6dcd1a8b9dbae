"""Every table and figure of the paper, and ours, made again."""
