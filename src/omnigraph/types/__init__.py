"""Value types of the two languages, their Arrow mapping, and the one meaning of a value.

Owns: what `I32?` or `Vector(8)` is, how it is stored (`arrow`), which Python values fit it and how they are spelled
inside ids (`values`). Never knows about declarations, files or tables. Start reading at `kinds`.
"""
