"""The two languages: `.pg` text becomes a catalog, plans and rules; `.gq` text becomes the representation.

Owns: the grammars, every static check, interfaces, migration plans, the type check of queries. Imports neither lance
nor pyspark. Start reading at `lang.schema.catalog` and `lang.query.ir`.
"""
