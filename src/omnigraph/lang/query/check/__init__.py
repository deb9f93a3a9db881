"""Checks of a parsed query, and the representation that a checked one becomes."""
