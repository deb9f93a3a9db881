"""Branches against each other: merge, diff, changes of commits, change feed.

Owns: the truth table of a merge, virtual bases, constraints on a merged result, images of rows, cursors. Never
publishes by itself: what it stages is committed by the graph. Start reading at `truth_table`, then `three_way` and
`merging`.
"""
