"""Patches: records that set some properties of rows that are there."""
