"""Small writes in process: a mutation is prepared in memory, validated as a whole, and staged once per table.

Owns: the accumulator with read-your-writes, statements, integrity rules and their local interpreter, staging. Never
makes anything visible: that is the commit protocol. Start reading at `mutation`, then `rules` and `validate`.
"""
