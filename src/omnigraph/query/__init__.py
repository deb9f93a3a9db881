"""The query language (`.gq`): text → syntax tree → checked query → intermediate representation.

Owns: the grammar, the type-check, parameters, the representation that every engine executes (`ir`, which states the
semantics), its text form (`explain`), descriptors and lint. Never reads data and never touches storage. Start reading
at `compiler`, then `ir`.
"""
