"""What a read knows of its snapshot: rows by id, traversal indexes, text columns, settings."""
