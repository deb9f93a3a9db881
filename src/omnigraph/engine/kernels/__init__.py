"""Loops over sorted neighbour lists: with numpy everywhere, and as machine code where the extra `fast` is installed."""
