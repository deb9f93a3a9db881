"""Running checked reads on one pinned snapshot.

Owns: the choice of physical paths (`paths`, pure), the settings of execution, and the engines. An engine implements the
docstrings of `omnigraph.query.ir`, so two engines give equal rows. Never parses, never publishes. Start reading at
`local`.
"""
