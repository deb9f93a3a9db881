"""Reads on one machine: the operators of a query, traversal, text and vector ranking.

Owns: operators on row ids with late materialisation, the choice of paths, and what is kept between queries. Never
starts a JVM, never writes to tables. Start reading at `executor`, then `operators` and `expand`; `direct`
answers short reads without them.
"""
