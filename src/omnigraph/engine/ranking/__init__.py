"""Entities in the order of a score, or of two."""
