"""Merges, differences, changes and the change feed of a graph.

Owns: the truth table of a merge, virtual bases, constraints on a merged result, images of rows, cursors. Never
publishes. Start reading at `truth_table`, then `merge` and `diffs`.
"""
