"""Expressions and functions over whole columns, in three-valued logic."""
