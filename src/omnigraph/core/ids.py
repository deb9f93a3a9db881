"""Names and ids of things in a graph: ULIDs, table keys, branches, directories, ids derived from key values.

Pure functions over text. How one value is spelled inside an id belongs to `omnigraph.core`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from omnigraph.errors import BadRequestError


class TableKey(str):
    """`node:Paper` or `edge:Cites`: the logical name of one dataset.

    >>> TableKey("node:Paper").kind, TableKey("node:Paper").name
    ('node', 'Paper')
    """

    __slots__ = ()

    @property
    def kind(self) -> str:
        """`node` or `edge`."""
        return self.partition(":")[0]

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.partition(":")[2]


_FNV_OFFSET = 14695981039346656037
_FNV_PRIME = 1099511628211
_U64_MASK = (1 << 64) - 1
#: 26 digits of five bits in Crockford's alphabet hold two bits more than an id.
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)
_BRANCH_SEGMENT = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def new_ulid() -> str:
    """A fresh 26-character ULID; ids made by one process sort in the order they were made."""
    # Late: a read makes none.
    from ulid import ULID

    return str(ULID())


def is_ulid(text: str) -> bool:
    """Whether `text` is a canonical upper-case ULID."""
    return _ULID.fullmatch(text) is not None


#: Fewer letters would name too many commits.
_ULID_PART = re.compile(r"[0-9A-HJKMNP-TV-Z]{4,26}", re.ASCII | re.IGNORECASE)
#: Letters of an id that people see and type. The first ones are a time, the last ones are random.
_SHORT = 8


def is_ulid_part(text: object) -> bool:
    """Whether a text may be the beginning or the end of a ULID, in letters of any case.

    >>> is_ulid_part("q69g5fav"), is_ulid_part("main")
    (True, False)
    """
    return isinstance(text, str) and _ULID_PART.fullmatch(text) is not None


def short_id(ulid: str) -> str:
    """The end of a ULID, by which people name it.

    >>> short_id("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    'Q69G5FAV'
    """
    return ulid[-_SHORT:]


#: The name of a graph that a server serves without naming it.
DEFAULT_GRAPH = "default"
_GRAPH_ID = re.compile(r"[a-zA-Z0-9-]{1,64}", re.ASCII)


def is_graph_id(text: str) -> bool:
    """Whether a server can serve a graph under this name."""
    return _GRAPH_ID.fullmatch(text) is not None


def ulid_time_ms(text: str) -> int:
    """The creation time of a ULID, in milliseconds since the epoch.

    >>> ulid_time_ms("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    1469922850259
    """
    from ulid import ULID

    return int(ULID.from_str(text).milliseconds)


def node_table_key(type_name: str) -> TableKey:
    """The table key of a node type.

    >>> node_table_key("Paper")
    'node:Paper'
    """
    return TableKey(f"node:{type_name}")


def edge_table_key(type_name: str) -> TableKey:
    """The table key of an edge type."""
    return TableKey(f"edge:{type_name}")


def fnv1a64(data: bytes) -> int:
    """The 64-bit FNV-1a hash, as an unsigned integer."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _U64_MASK
    return value


def directory_name(type_name: str, incarnation: int | None = None) -> str:
    """The directory of a dataset below `nodes/` or `edges/`: fixed length and safe on every file system.

    A name that was dropped and added again passes its incarnation, so that it never meets the old files.

    >>> directory_name("Paper")
    'da89d00e1b71df59'
    """
    digest = f"{fnv1a64(type_name.encode()):016x}"
    return digest if incarnation is None else f"{digest}-{incarnation}"


def derive_id(spellings: Sequence[str]) -> str:
    """The id of a keyed node or edge, from the canonical spellings of its key members in member order.

    A one-member key is its own spelling; a composite key is a compact JSON array of the spellings.

    >>> derive_id(["10.5/a1"])
    '10.5/a1'
    >>> derive_id(["29", "SOSP"])
    '["29","SOSP"]'
    """
    if not spellings:
        raise ValueError("a key has at least one member")
    if len(spellings) == 1:
        return spellings[0]
    return json.dumps(list(spellings), ensure_ascii=False, separators=(",", ":"))


def split_id(entity_id: str, member_count: int) -> tuple[str, ...]:
    """The spellings inside a derived id: the inverse of `derive_id`.

    Raises:
        ValueError: `entity_id` is not an id of a key with `member_count` members.
    """
    if member_count == 1:
        return (entity_id,)
    try:
        parts = json.loads(entity_id)
    except RecursionError:
        parts = None
    is_key = isinstance(parts, list) and len(parts) == member_count
    if not is_key or not all(isinstance(part, str) for part in parts) or derive_id(parts) != entity_id:
        raise ValueError(f"{entity_id!r} is not an id of a key with {member_count} members")
    return tuple(parts)


def check_branch_name(name: str) -> str:
    """The name without surrounding spaces.

    Raises:
        BadRequestError: it is empty, reserved, or not a path of plain segments.
    """
    name = name.strip()
    segments = name.split("/")
    is_plain = all(
        _BRANCH_SEGMENT.fullmatch(segment) and segment != "." and ".." not in segment and not segment.endswith(".lock")
        for segment in segments
    )
    if not is_plain:
        raise BadRequestError(f"{name!r} is not a branch name: use letters, digits, `.`, `-`, `_`, joined by `/`")
    if name.startswith("__"):
        raise BadRequestError(f"branch names that begin with `__` are reserved: {name!r}")
    return name
