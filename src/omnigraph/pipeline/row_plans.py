"""What a merge does to the rows of one table: few of them in memory, many of them in files of the merge.

A plan consists of parts, each with rows of one kind. Tasks read the parts; the driver knows how many rows they have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as _arrow

from omnigraph.storage.answers import attempt_name, read_answer, write_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnigraph.storage.answers import AnswerFolder

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

#: Rows of a part at most.
PART_ROWS = 200_000
#: Row ids of the rows in the source and in the target; null where a row is not there.
PLAN = pa.schema([("id", pa.utf8()), ("source", pa.int64()), ("target", pa.int64())])


class Action(IntEnum):
    """What happens to a row of the target."""

    #: The target takes over a row that it does not have.
    INSERT = 0
    #: A row of the source replaces one of the target.
    UPDATE = 1
    DELETE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    """A part in memory."""

    action: Action
    rows: Any
    is_in_file = False

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return int(self.rows.num_rows)

    def read(self) -> Any:
        """The rows as a `PLAN` batch."""
        return self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledRows:
    """A part that is a batch of a file. Picklable."""

    action: Action
    row_count: int
    folder: AnswerFolder
    name: str
    batch: int
    is_in_file = True

    def read(self) -> Any:
        """The rows as a `PLAN` batch."""
        (batch,) = read_answer(self.folder, self.name, self.batch, self.batch + 1)
        return batch


PlannedRows: TypeAlias = HeldRows | FiledRows


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedConflict:
    """An id that a merge cannot decide about."""

    entity_id: str
    #: A value of `truth_table.Choice`.
    choice: int
    #: The place in `Base.commits` of a commit that holds the row of the base; -1 where none does.
    holder: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """What a merge does to one table."""

    parts: tuple[PlannedRows, ...]
    #: Ids of the rows that go.
    deleted_ids: Sequence[str] = ()
    #: The first conflicts in the order of their ids, and how many there are.
    conflicts: tuple[PlannedConflict, ...] = ()
    conflict_total: int = 0
    _counts: dict[Action, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for part in self.parts:
            self._counts[part.action] = self._counts.get(part.action, 0) + part.row_count

    @property
    def inserted(self) -> int:
        """How many rows the target gains."""
        return self._counts.get(Action.INSERT, 0)

    @property
    def updated(self) -> int:
        """How many rows of the target are replaced."""
        return self._counts.get(Action.UPDATE, 0)

    @property
    def deleted(self) -> int:
        """How many rows of the target go."""
        return self._counts.get(Action.DELETE, 0)

    @property
    def row_count(self) -> int:
        """How many rows of the target change."""
        return sum(self._counts.values())

    def of(self, *actions: Action) -> list[PlannedRows]:
        """The parts with rows of some kinds."""
        return [part for part in self.parts if part.action in actions]

    @property
    def losing(self) -> list[PlannedRows]:
        """The parts with rows of the target that go or are replaced."""
        return self.of(Action.UPDATE, Action.DELETE)


def held_parts(action: Action, rows: Any) -> Iterator[HeldRows]:
    """Rows of one kind as parts in memory."""
    for begin in range(0, rows.num_rows, PART_ROWS):
        yield HeldRows(action=action, rows=rows.slice(begin, PART_ROWS))


def file_parts(
    folder: AnswerFolder, number: int, parts: Sequence[HeldRows]
) -> tuple[str, list[tuple[int, int]]]:
    """Write parts as batches of one file: its name, kind and size of each batch."""
    name = attempt_name("plan", number)
    if parts:
        write_answer(folder, name, PLAN, (part.rows for part in parts))
    return name, [(int(part.action), part.row_count) for part in parts]


def filed_parts(
    folder: AnswerFolder, name: str, batches: Sequence[tuple[int, int]]
) -> Iterator[FiledRows]:
    """The parts of a file, from what `file_parts` told about it."""
    for number, (action, rows) in enumerate(batches):
        yield FiledRows(
            action=Action(action), row_count=rows, folder=folder, name=name, batch=number
        )
