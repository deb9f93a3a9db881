"""How large and how deep a source text may be: every bound of the two languages, in one place.

Each of them is far beyond what people and tools write, and far below what a parser, a recursive walk or a reader of
errors could not survive. `docs/decisions/0003-source-limits.md` gives the reasons.
"""

from __future__ import annotations

#: Largest source text of either language. A schema or query file is written by people and tools for people; data
#: belongs into load files, which have no such limit.
MAX_SOURCE_BYTES = 4 * 1024 * 1024

#: Deepest nesting of brackets. Far beyond any readable query, far below what a recursive walk could not survive.
MAX_NESTING = 64

#: Words, numbers, strings and signs of one text. The parser is linear, but its constant is that of Python.
MAX_TOKENS = 250_000

#: Bindings, traversals and `not` blocks of one query, nested ones included: each is an operator that holds rows.
MAX_PATTERNS = 256

#: Everything that one query lists: clauses, inline matches, columns, order keys, parameters, statements, assignments.
MAX_PARTS = 20_000

#: Characters of the message of one finding; names of any length stand in it.
MAX_MESSAGE = 1_000
