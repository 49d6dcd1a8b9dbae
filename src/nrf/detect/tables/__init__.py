"""Tables as numbers: frames, columns, schemas, files, streams."""
