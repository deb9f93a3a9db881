"""Columns that Lance keeps for every row: an identity for its whole life, and where it lies now."""

from __future__ import annotations

ROW_ID = "_rowid"
#: The fragment in the upper 32 bits, the offset in it in the lower ones. A compaction changes it.
ROW_ADDRESS = "_rowaddr"
