"""The embedded graph: `Graph` and the parts that do its work.

Owns: the `Graph` object, creation of a graph, reads, mutations, loads, schema changes, branches and exports as one open
graph sees them. Start reading at `graph`, then `open_graph`.
"""
