"""The manifest and recovery: what makes a commit atomic over all tables of a graph.

Owns: rows of `__manifest`, pure reconstruction of snapshots, the publisher (the one door), lineage, sidecars and the
phases A to D of a write, the settling of interrupted writes, accepted schemas. Never reads or checks data. Start
reading at `attempt`, then `publisher` and `sweep`.
"""
