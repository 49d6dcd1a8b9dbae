"""What is served over HTTP. Its modules need the extra ``serve``."""
