"""Vectors for texts, in bulk: of records in files, and of rows in a graph.

    files    specs → texts → files              JSON lines in, JSON lines out; no graph involved
    graphs   outdated → work → tasks → edits    which rows, their vectors kept in part files, one staged write per table

Nothing is committed here: whoever called runs the commit protocol.
"""
