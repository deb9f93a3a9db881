"""Loads: planning the input, reading and shaping records, writing fragments, checking relations."""
