"""Rules between rows of a load: ids, uniqueness, ends of edges, edges per source, over the image that it would make.

Written once over `Joins`; which side of a comparison is large is the business of the joins.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import BadRecord
from omnigraph.pipeline.job_names import detail
from omnigraph.pipeline.keys import joined_text, key_scans, text_key
from omnigraph.pipeline.merging import LoadMode
from omnigraph.pipeline.problems import Place, Problems, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from omnigraph.ids import TableKey
    from omnigraph.pipeline.joins import Example, Found, Joins
    from omnigraph.pipeline.keys import KeyScan
    from omnigraph.storage.tables import Table
    from omnigraph.writes.rules import EdgesPerSource, Endpoints, TableRules, Unique

KEY_CONFLICT = "key_conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One table as it would be after the load."""

    table: Table
    #: Fragments that the load adds; none for a table that it does not touch.
    new: tuple[int, ...] = ()
    #: Whether some ids of the new rows are given or derived; generated ones are distinct.
    has_given_ids: bool = True
    #: Sources of edges that the load replaces: they may have lost one.
    old_sources: Sequence[str] = ()

    @property
    def old(self) -> list[int]:
        """Fragments that were there before."""
        from omnigraph.storage.fragments import fragment_sizes

        new = set(self.new)
        return [number for number in fragment_sizes(self.table) if number not in new]

    def scans(self, column: str, *, is_new: bool) -> list[KeyScan]:
        """The texts of a column, of the new rows or of the old ones."""
        return key_scans(self.table, self.new if is_new else self.old, text_key(column))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationChecker:
    """Checks one load. Tables that it looks at are added to `read`."""

    mode: LoadMode
    images: Mapping[TableKey, Image]
    rules: Mapping[TableKey, TableRules]
    joins: Joins
    #: The image of a table that the load does not touch.
    untouched: Callable[[TableKey], Image]
    #: Where a new row came from.
    locate: Callable[[TableKey, int], Place]
    problems: Problems
    #: Hears what is checked next.
    tell: Callable[[str], None]

    def check_all(self) -> None:
        """Check every rule; violations are counted in `problems`."""
        self.check_ids()
        for key, image in self.images.items():
            for unique in self.rules[key].uniques:
                with self._step(f"{unique} is unique"):
                    self._check_unique(unique, key, image)
        for key, rules in self.rules.items():
            name = key.partition(":")[2]
            if rules.endpoints is not None:
                with self._step(f"ends of {name}"):
                    self._check_ends(rules.endpoints, key)
            if rules.per_source is not None and key in self.images:
                with self._step(f"edges per source of {name}"):
                    self._check_cardinality(rules.per_source, key, self.images[key])

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        """Name a check where people follow the load, and its jobs in Spark."""
        self.tell(what)
        with detail(what):
            yield

    # ---- ids

    def check_ids(self) -> None:
        """Check that ids are distinct, and in an append that they are new."""
        for key, image in self.images.items():
            with self._step(f"ids of {key.partition(':')[2]}"):
                self._check_ids(key, image)

    def _check_ids(self, key: TableKey, image: Image) -> None:
        if not image.new or not image.has_given_ids:
            return
        name = key.partition(":")[2]
        new = image.scans("id", is_new=True)
        found = self.joins.duplicated(new)

        def twice(item: Example) -> str:
            return f"the id {item.key!r} of {name} is given {item.count:,} times"

        self._report(found, key, "id", f"duplicate id of {name}", twice)
        old = image.scans("id", is_new=False) if self.mode is LoadMode.APPEND else []
        if old:
            found = self.joins.shared(new, old)
            self._report(
                found,
                key,
                "id",
                f"{KEY_CONFLICT} of {name}",
                lambda item: (
                    f"a {key.partition(':')[0]} of type {name} with id {item.key!r} exists already"
                ),
            )

    # ---- uniqueness

    def _check_unique(self, rule: Unique, key: TableKey, image: Image) -> None:
        if not image.new:
            return
        members = list(zip(rule.members, rule.bases, strict=True))
        new = key_scans(image.table, image.new, members)
        old = key_scans(image.table, image.old, members)
        field = rule.members[0] if len(rule.members) == 1 else ", ".join(rule.members)
        name = f"@unique violation on {rule}"

        def message(item: Example) -> str:
            ids = _ids_at(image.table, item.addresses[:2])
            value = item.key if len(rule.members) == 1 else joined_text(item.key)
            return f"{name}: {value!r} belongs to {ids[0]!r} and to {ids[1]!r}"

        # Rows of one id are one entity: what is wrong with them is told about the id.
        owner = "id" if image.has_given_ids else None
        self._report(self.joins.duplicated(new, owner), key, field, name, message, place=-1)
        if old:
            self._report(self.joins.shared(new, old, owner), key, field, name, message)

    # ---- edges

    def _check_ends(self, rule: Endpoints, key: TableKey) -> None:
        ends = (("src", rule.source, rule.source_type), ("dst", rule.target, rule.target_type))
        for column, node, type_name in ends:
            image = self.images.get(key)
            is_stranding = self.mode is LoadMode.OVERWRITE and node in self.images
            if image is None:
                if not is_stranding:
                    continue
                image = self.untouched(key)
                references = image.scans(column, is_new=False)
            else:
                references = image.scans(column, is_new=True)
            if not references:
                continue
            nodes = self.images.get(node) or self.untouched(node)
            ids = key_scans(nodes.table, None, text_key("id"))
            name = f"{column} of {rule.edge_type} not found in {type_name}"
            found = self.joins.missing(references, ids)

            def message(item: Example, column: str = column, type_name: str = type_name) -> str:
                return f"edge {rule.edge_type}: {column} {item.key!r} not found in {type_name}"

            self._report(found, key, "from" if column == "src" else "to", name, message)

    def _check_cardinality(self, rule: EdgesPerSource, key: TableKey, image: Image) -> None:
        touched = image.scans("src", is_new=True)
        if not touched and not image.old_sources:
            return
        counted = key_scans(image.table, None, text_key("src"))
        found = self.joins.outside(counted, touched, rule.low, rule.high, image.old_sources)
        bounds = f"{rule.low}..{'' if rule.high is None else rule.high}"
        name = f"@card violation on edge {rule.edge_type}"

        def message(item: Example) -> str:
            return f"{name}: {item.key!r} has {item.count} edges, allowed are {bounds}"

        self._report(found, key, "from", name, message)

    # ---- reports

    def _report(
        self,
        found: Found,
        key: TableKey,
        field: str,
        rule: str,
        message: Callable[[Example], str],
        *,
        place: int = 0,
    ) -> None:
        if not found.total:
            return
        records = []
        for item in found.examples:
            where = self._place(key, item.addresses, place)
            record = BadRecord(
                source=where.source,
                line=where.line,
                unit=where.unit,
                type_key=key,
                field=field,
                value=shown(joined_text(item.key) if ", " in field else item.key),
                rule=rule,
                message=message(item),
            )
            records.append(record)
        records.sort(key=lambda record: (record.source, record.line or 0))
        self.problems.add_found(rule, found.total, records)

    def _place(self, key: TableKey, addresses: Sequence[int], place: int) -> Place:
        """Where the row of an example came from; rows that the graph had before are in the graph."""
        image = self.images.get(key)
        new = set(image.new) if image is not None else set()
        mine = [address for address in addresses if address >> 32 in new]
        if not mine:
            return Place("graph")
        return self.locate(key, mine[place])


def _ids_at(table: Table, addresses: Sequence[int]) -> list[str]:
    from omnigraph.storage.fragments import read_addresses

    return read_addresses(table, "id", addresses)
