"""External blobs of one mutation: checked, counted, copied. A mutation never keeps a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import ResourceLimitError

if TYPE_CHECKING:
    from omnigraph.storage.external_policy import ExternalPolicy


@dataclass(slots=True)
class ExternalIntake:
    """Takes the bytes of allowed addresses into a write."""

    policy: ExternalPolicy
    #: Bytes that all of them may have together.
    max_bytes: int
    cells: int = 0
    copied_bytes: int = 0

    def copied(self, uri: str) -> bytes:
        """The cell with the bytes behind an address.

        Raises:
            ExternalBlobPolicyError: the address is not allowed.
            ExternalBlobSourceError: it cannot be read.
            ResourceLimitError: there are too many, or they are too large.
        """
        allowed = self.policy.check(uri)
        from omnigraph.storage.external_sources import copied_cells

        self.cells += 1
        check_cells(self.cells)
        (cell,) = copied_cells([allowed], self.max_bytes - self.copied_bytes)
        self.copied_bytes += len(cell)
        return cell


def check_cells(count: int) -> None:
    """Refuse more external blobs than one operation may bring."""
    from omnigraph.storage.external_sources import EXTERNAL_CELLS

    if count > EXTERNAL_CELLS:
        advice = "split the input, or give the bytes as `base64:…`"
        raise ResourceLimitError("external blobs of one operation", EXTERNAL_CELLS, count, advice)
