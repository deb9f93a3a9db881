"""Mutations and the checker of integrity rules.

Owns: pending rows with read-your-writes, statements, rules on values and between rows, staging. Never commits. Start
reading at `mutation`, then `rules`.
"""
