"""The façade of a graph: open, query, mutate, branch; every surface goes through it.

Owns: the `Graph` object, its settings, creation of a graph, the accepted schema files. Delegates everything else to the
rooms below. Start reading at `graph`.
"""
