"""Columns, groups, order and equality of results."""
