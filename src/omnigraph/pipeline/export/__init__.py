"""Exports: rows of pinned tables as sorted lines or Parquet."""
