"""The engine that runs reads in this process, over Arrow arrays, Lance scans and traversal indexes.

Owns: operators on row ids with late materialisation, and what is kept between queries. Never starts a JVM, never writes
to a table. Rows travel as batches of row ids; values are read when an operator needs them. Start reading at `executor`,
then `pipeline`; semantics are those of `omnigraph.query.ir` and nothing else.
"""
