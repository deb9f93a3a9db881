"""Deterministic data for the benchmarks: typed property graphs as Parquet files beside a `.pg` schema.

A dataset is a folder:

    schema.pg                 the graph in OmniGraph's schema language
    nodes/<Type>.parquet      the first column is the key
    edges/<Type>.parquet      columns `from` and `to` (keys of the end nodes), then the properties
    stats.json                rows and a content hash per table; written last, so its presence means "complete"

The generators need numpy and pyarrow only: the environment of the peers reads the same files.
"""
