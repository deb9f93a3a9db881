"""External blobs in the records of a load: allowed or not, then kept as references or copied.

Which of both is decided by the mode: an overwrite keeps references, whatever adds to existing rows copies the bytes. A
task looks at its own records; the number of them is bounded for the whole load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as _arrow

from omnigraph.environ import whole_number
from omnigraph.errors import ExternalBlobPolicyError, ResourceLimitError
from omnigraph.storage.external_policy import DENY_ALL, ExternalPolicy
from omnigraph.types.blob_cells import MANAGED

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The published stubs of pyarrow describe arrays of one type only.
pa: Any = _arrow

EXTERNAL_BLOB_MAX_BYTES = "OMNIGRAPH_EXTERNAL_BLOB_MAX_BYTES"
_DEFAULT_MAX_BYTES = 256 * 1024 * 1024
#: Records that are shaped together when their external blobs are copied: all bytes are in memory at once.
COPIED_TOGETHER = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalRule:
    """What a load does with external blobs. Plain values: it travels to tasks."""

    policy: ExternalPolicy = DENY_ALL
    keeps_references: bool = False
    #: Bytes of external blobs that a task copies at once.
    max_bytes: int = _DEFAULT_MAX_BYTES

    @property
    def copies(self) -> bool:
        """Whether any bytes may be copied."""
        return bool(self.policy.bases) and not self.keeps_references


def external_rule(policy: ExternalPolicy, *, is_overwrite: bool) -> ExternalRule:
    """The rule of one load."""
    return ExternalRule(
        policy=policy,
        keeps_references=is_overwrite,
        max_bytes=whole_number(EXTERNAL_BLOB_MAX_BYTES, _DEFAULT_MAX_BYTES, lowest=1),
    )


def is_cell_parts(kind: Any) -> bool:
    """Whether a column has the form in which an export writes bytes and addresses side by side."""
    return bool(pa.types.is_struct(kind)) and {item.name for item in kind} == {"data", "uri"}


def cell_values(column: Any) -> list[Any]:
    """Such a column as plain values: bytes, or the text of an address. What has both stays as it is, and is refused."""
    return [_cell_value(value) for value in column.to_pylist()]


def _cell_value(value: dict[str, Any] | None) -> Any:
    if value is None:
        return None
    data, uri = value["data"], value["uri"]
    if data is not None and uri is not None:
        return value
    return uri if data is None else data


def external_texts(values: list[Any]) -> dict[int, str]:
    """The values that are addresses of external blobs, by position."""
    return {
        place: value
        for place, value in enumerate(values)
        if isinstance(value, str) and not value.startswith(MANAGED)
    }


def with_external(
    stored: Any, texts: Mapping[int, str], rule: ExternalRule
) -> tuple[Any, dict[int, str]]:
    """A column of cells with those of external blobs filled in, and the complaints about addresses, by position.

    Raises:
        ExternalBlobSourceError: an allowed address cannot be read.
        ResourceLimitError: the bytes to copy are too many.
    """
    from omnigraph.storage.external_sources import copied_cells, referring_cells

    allowed, complaints = {}, {}
    for place, text in texts.items():
        try:
            allowed[place] = rule.policy.check(text)
        except ExternalBlobPolicyError as error:
            complaints[place] = f"the external blob is refused: {error.reason}"
        except ResourceLimitError as error:
            complaints[place] = f"the external blob is refused: {error.message}"
    uris = list(allowed.values())
    found = referring_cells(uris) if rule.keeps_references else copied_cells(uris, rule.max_bytes)
    cells = stored.to_pylist()
    for place, cell in zip(allowed, found, strict=True):
        cells[place] = cell
    return pa.array(cells, pa.large_binary()), complaints
