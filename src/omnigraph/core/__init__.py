"""Shared foundations: ids, value types, Arrow, source texts with places, settings, caches and bounds.

Owns: the closed set of value types, `TableKey`, the reading of `OMNIGRAPH_*` variables, failpoints of tests. Imports
`errors` only. Start reading at `types` and `ids`.
"""
