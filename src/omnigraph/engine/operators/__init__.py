"""The operators of a pipeline, each from batches of rows to batches of rows."""
