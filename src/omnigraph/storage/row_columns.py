"""Columns that Lance keeps for every row: an identity for its whole life, where it lies now, and its history."""

from __future__ import annotations

ROW_ID = "_rowid"
#: The fragment in the upper 32 bits, the offset in it in the lower ones. A compaction changes it.
ROW_ADDRESS = "_rowaddr"
#: The version of the table that brought the row, and the one that changed it last.
CREATED_AT = "_row_created_at_version"
UPDATED_AT = "_row_last_updated_at_version"
