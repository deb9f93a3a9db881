"""The schema language (`.pg`): text → syntax tree → catalog, and plans from one schema to another.

Owns: the grammar, every static check, interfaces, the catalog, the shape hash, stable identities, migration plans and
the persisted contract. Never reads data and never touches storage. Start reading at `compiler`; `plan` explains
migrations.
"""
