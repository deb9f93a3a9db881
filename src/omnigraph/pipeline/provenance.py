"""Where rows of a load came from: found by reading the part again, when a report has to name a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import OmniError
from omnigraph.errors.loads import LINE, ROW
from omnigraph.pipeline.problems import Place, Problems
from omnigraph.pipeline.reading import PartReader
from omnigraph.pipeline.shaping import shape_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.ids import TableKey
    from omnigraph.pipeline.parts import Part
    from omnigraph.pipeline.plan import LoadPlan

#: Larger inputs are reported without the line: looking for it would need too much memory.
_MAX_REMEMBERED_IDS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The first row of a fragment: so many rows of its type into a part, or into a partition of a frame."""

    part: Part | None = None
    name: str = ""
    row: int = 0


class Provenance:
    """Remembers where parts begin in their files, and the lines of parts that were looked at."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._first_lines: dict[int, int] = {}
        self._units: dict[int, str] = {}
        self._lines: dict[tuple[int, TableKey], list[int]] = {}
        self._ids: dict[TableKey, dict[str, Place]] = {}

    def set_first_line(self, part: int, lines_before: int, unit: str) -> None:
        """So many lines of the file come before a part, or whatever is counted there."""
        self._first_lines[part] = lines_before
        self._units[part] = unit

    def first_line(self, part: int) -> int:
        """How many lines of the file come before a part."""
        return self._first_lines.get(part, 0)

    def place(self, origin: Origin, key: TableKey, offset: int) -> Place:
        """The place of a row, counted from the first row of its fragment."""
        if origin.part is None:
            return Place(origin.name, origin.row + offset + 1, ROW)
        lines = self._lines_of(origin.part, key)
        position = origin.row + offset
        if position >= len(lines):
            return Place(origin.part.file.path)
        return self._placed(origin.part, lines[position])

    def _placed(self, part: Part, line: int) -> Place:
        before = self._first_lines.get(part.number, 0)
        return Place(part.file.path, before + line, self._units.get(part.number, LINE))

    def place_of_id(self, parts: Sequence[Part], key: TableKey, entity_id: str) -> Place:
        """The place of the last record with an id."""
        if key not in self._ids:
            self._ids[key] = self._read_ids(parts, key)
        return self._ids[key].get(entity_id, Place("input"))

    def _read_ids(self, parts: Sequence[Part], key: TableKey) -> dict[str, Place]:
        found: dict[str, Place] = {}
        try:
            for part in parts:
                row = 0
                for raw in PartReader(part, self._plan, Problems()).records():
                    if raw.shape.key != key:
                        continue
                    shaped = shape_records(
                        raw, self._plan, source=part.file.path, part=part.number, first_row=row
                    )
                    row += raw.count
                    ids = shaped.rows["id"].to_pylist()
                    found.update(
                        (name, self._placed(part, line))
                        for name, line in zip(ids, shaped.lines.tolist(), strict=True)
                    )
                if len(found) > _MAX_REMEMBERED_IDS:
                    return {}
        except OmniError:
            return {}
        return found

    def _lines_of(self, part: Part, key: TableKey) -> list[int]:
        known = self._lines.get((part.number, key))
        if known is None:
            known = []
            try:
                for raw in PartReader(part, self._plan, Problems()).records():
                    if raw.shape.key == key:
                        known += raw.lines.tolist()
            except OmniError:
                # The file changed since it was read: the report does without the line.
                known = []
            self._lines[part.number, key] = known
        return known
