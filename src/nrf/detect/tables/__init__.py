"""Turn tables into numbers: frames, columns, schemas, files, streams."""
