"""Sources of records: files, mappings and frames, cut into parts and read into records with their places."""
