"""Search beside the query language: which indexes a schema asks for, and what turns text into vectors.

Owns: the rule from declarations to indexes (`indexes`, pure), the embedding client and its providers, their settings,
the check of a recorded model. Never reads or writes a graph, and never embeds inside a write. Importing it is cheap:
HTTP, numbers and models are imported when first used. Start reading at `indexes` and `embedding.contract`.
"""
