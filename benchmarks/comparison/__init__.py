"""Several systems, one graph, the same questions: the machinery of `queries.py`.

Each engine loads the same Parquet files and answers the workloads it can express. The peers live in an environment of
their own: each runs as a worker process of that interpreter and measures itself, so no transport is timed. Nothing
here opens a socket. Start reading at `contract`, then `workloads`, `session` and `figures`.
"""
