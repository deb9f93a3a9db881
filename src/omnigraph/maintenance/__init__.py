"""Layout, indexes, retention and health of a graph.

Owns: compaction and index builds, what a cleanup keeps and removes, repair, the checks of `doctor` and `verify`. Start
reading at `optimize`, `cleanup` and `doctor`.
"""
