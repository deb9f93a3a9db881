"""Bulk work that does not know who runs it: loads, exports, upserts, comparisons, rewrites.

Owns: reading of sources, shaping and checking of records, the tasks that read and write fragments, questions about
keys, exchanges of rows. Tasks run in this process or on Spark through `workers`. Never imports pyspark. Start reading
at `workers`, then `load.job`; `sources` read records, `shape` turns them into rows, `patch` changes properties of rows.
"""
