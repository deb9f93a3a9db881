"""The catalog: which dataset versions are visible together, on which branch, since which commit.

Owns: catalog rows, pure reconstruction of snapshots, the publisher (the one door), lineage, targets of reads, the
storage-format stamp. Never touches the data of a table. Start reading at `rows`, then `snapshot` and `publisher`.
"""
