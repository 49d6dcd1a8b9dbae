"""Services over HTTP. Its modules need the extra ``serve``."""
