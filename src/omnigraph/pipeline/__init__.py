"""Bulk work: load, export, compaction and index builds, on Spark executors or in this process.

Owns: reading of sources, shaping and checking of records, the tasks that read and write fragments, the joins behind
rules between rows, progress. Never commits: it hands staged writes to the commit protocol. Only Arrow, plain values and
JSON messages cross to executors. Start reading at `load`, then `staging`, `shaping` and `relations`.
"""
