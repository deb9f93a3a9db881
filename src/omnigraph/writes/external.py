"""External blobs of one mutation: checked, counted, copied. A mutation never keeps a reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.errors import ResourceLimitError
from omnigraph.storage.external_policy import DENY_ALL

if TYPE_CHECKING:
    from omnigraph.storage.external_policy import ExternalPolicy


@dataclass(slots=True)
class ExternalIntake:
    """Takes the bytes of allowed addresses into a mutation.

    Lasts for all tries of one call: a try after a lost race may run inside the commit window, where nobody should wait
    for a server, and has to see the same bytes.
    """

    policy: ExternalPolicy = DENY_ALL
    #: Bytes that all of them may have together.
    max_bytes: int = 0
    _cells: int = 0
    _bytes: int = 0
    _known: dict[str, bytes] = field(default_factory=dict)

    def begin(self) -> None:
        """Count anew, for another try."""
        self._cells = self._bytes = 0

    def copied(self, uri: str) -> bytes:
        """The cell with the bytes behind an address.

        Raises:
            ExternalBlobPolicyError: the address is not allowed.
            ExternalBlobSourceError: it cannot be read.
            ResourceLimitError: there are too many, or they are too large.
        """
        from omnigraph.storage.external_sources import check_bytes, copied_cells

        allowed = self.policy.check(uri)
        self._cells += 1
        check_cells(self._cells)
        if uri not in self._known:
            (self._known[uri],) = copied_cells([allowed], self.max_bytes - self._bytes)
        self._bytes += len(self._known[uri])
        check_bytes(self._bytes, self.max_bytes)
        return self._known[uri]


def check_cells(count: int) -> None:
    """Refuse more external blobs than one operation may bring."""
    from omnigraph.storage.external_sources import EXTERNAL_CELLS

    if count > EXTERNAL_CELLS:
        advice = "split the input, or give the bytes as `base64:…`"
        raise ResourceLimitError("external blobs of one operation", EXTERNAL_CELLS, count, advice)
