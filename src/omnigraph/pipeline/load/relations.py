"""Rules between rows, held against what a load has staged, and the records that violate them.

Only good records are staged. What is compared are these: a record that is wrong by itself is in no image of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from omnigraph.core.arrow import pa, pc
from omnigraph.core.ids import TableKey
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.errors import MAX_EXAMPLES
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import End, EndRefused, NewIds, Rule, TableRules, Unique
from omnigraph.pipeline.exchange import KeyFiles, key_files
from omnigraph.pipeline.keys import find_keys, key_scans, text_key
from omnigraph.pipeline.minimum import find_outside, without_minimum
from omnigraph.pipeline.patch.files import PatchFile
from omnigraph.pipeline.sources.provenance import Origin, Provenance
from omnigraph.pipeline.tally import BrokenKeys, Counted, Side, Tally, is_missing
from omnigraph.pipeline.upsert import LoadMode
from omnigraph.pipeline.violations import GRAPH, Image, Place, TableChanges, ViolationCounts, named_examples
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder
from omnigraph.storage.datasets.fragments import read_addresses
from omnigraph.storage.datasets.staged import PrivateVersion, close_private, open_private, stage_fragments
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.objects import ControlObjects
from omnigraph.writes.columns import texts
from omnigraph.writes.rules import Violation, check, check_ids

_OFFSET_MASK = 0xFFFFFFFF
_BOTH_ENDS = [(column, ScalarType(Scalar.STRING)) for column in ("src", "dst")]
#: Edges of a table up to which new ones are compared with them.
_COUNTED_EDGES = 1_000_000


# ---- What a load has staged


@dataclass(slots=True)
class StagedType:
    """The staged records of one type."""

    #: Records of the input, the bad ones too, and how many of them are wrong by themselves.
    rows: int = 0
    bad: int = 0
    #: Fragments of the good ones or, of a patch, files, and where each of them begins in the input.
    fragments: list[str] = field(default_factory=list)
    patches: list[PatchFile] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    has_given_ids: bool = False


@frozen(kw_only=True)
class Staged:
    """The good records of a load as rows, type by type, and what is wrong with the others."""

    types: dict[TableKey, StagedType]
    #: Files with the ids of bad records, of nodes.
    bad_ids: dict[TableKey, list[Message]] = field(default_factory=dict)
    #: Node types with bad records whose ids cannot be read; an empty text for records whose type cannot be read.
    unnamed: set[str] = field(default_factory=set)
    provenance: Provenance = field(default_factory=Provenance)
    #: What is wrong with single records.
    violations: ViolationCounts = field(default_factory=ViolationCounts)
    #: Files with all of it, and the number of the piece that each is about, where bad records are kept.
    rejects: list[tuple[int, str]] = field(default_factory=list)


@contextmanager
def appended(staged: StagedType, table: Table, objects: ControlObjects) -> Iterator[PrivateVersion]:
    """The staged rows of a type behind those of its table, in the order of the input."""
    private = open_private(stage_fragments(table, staged.fragments))
    try:
        yield private
    finally:
        close_private(private, objects)


# ---- The check of one preparation


@dataclass(kw_only=True)
class Relations:
    """Checks what a load would do to its tables, and counts what it finds."""

    staged: Staged
    #: The tables of the staged types, as they are now.
    tables: Mapping[TableKey, Table]
    #: The image of a table that the load does not touch.
    untouched: Callable[[TableKey], Image]
    mode: LoadMode
    rules: Mapping[TableKey, TableRules]
    engine: WorkerSet
    objects: ControlObjects
    folder: AnswerFolder
    #: Whether every node needs the edges that the schema asks for, also where it never had one.
    checks_minimum: bool = False
    #: Whether fragments were written again without some rows, so that only ids tell where rows come from.
    is_rewritten: bool = False
    counts: ViolationCounts = field(default_factory=ViolationCounts)
    violated: list[tuple[TableKey, Rule]] = field(default_factory=list)
    #: The rule of ids that have to be new, if one of them exists.
    conflict: NewIds | None = None

    def check_duplicates(self, key: TableKey, private: PrivateVersion) -> None:
        """Find equal ids of records that are as they were read."""
        images = {key: Image(table=private.table, new=private.new_fragments)}
        for violation in check_ids(images, self._changes(images), must_be_new=False):
            self._add(violation, images, is_as_staged=not self.is_rewritten)

    def check(self, images: Mapping[TableKey, Image]) -> None:
        """Find every violation in the tables as the load leaves them."""
        changes = self._changes(images)
        # An upsert writes rows in another order.
        is_as_staged = self.mode is not LoadMode.UPSERT and not self.is_rewritten
        for violation in check_ids(images, changes, must_be_new=self.mode is LoadMode.APPEND):
            self._add(violation, images, is_as_staged=is_as_staged)
        rules = without_minimum(self.rules) if self.checks_minimum else self.rules
        for found in check(rules, changes):
            for violation in self._told_apart(found, images):
                self._add(violation, images, is_as_staged=is_as_staged)
        if self.checks_minimum:
            for violation in find_outside(self.rules, partial(self._table, images), self.engine, self.folder):
                self._add(violation, images, is_as_staged=is_as_staged)

    def _table(self, images: Mapping[TableKey, Image], key: TableKey) -> Table:
        return (images.get(key) or self.untouched(key)).table

    def repeated_edges(self, images: Mapping[TableKey, Image]) -> dict[TableKey, int]:
        """Count the new edges without ids, per type, between nodes that an edge of the type joins already.

        An upsert cannot know them again: who loads a file a second time has every edge twice. In large tables nothing
        is counted, since it would take as long as the rest of the load.
        """
        if self.mode is not LoadMode.UPSERT or self.counts:
            return {}
        found = {}
        for key, image in images.items():
            staged, before = self.staged.types.get(key), self.tables[key].row_count
            if key.kind == "edge" and staged is not None and not staged.has_given_ids and 0 < before <= _COUNTED_EDGES:
                new, old = (key_scans(image.table, part, _BOTH_ENDS) for part in (image.new, image.outside(image.new)))
                if new and (total := self.engine.joins.shared(new, old).total):
                    found[key] = total
        return found

    def _changes(self, images: Mapping[TableKey, Image]) -> TableChanges:
        joins, tell = self.engine.joins, self.engine.inner.tell
        return TableChanges(images=images, joins=joins, untouched=self.untouched, tell=tell)

    def _add(self, violation: Violation, images: Mapping[TableKey, Image], *, is_as_staged: bool) -> None:
        self.violated.append((violation.key, violation.rule))
        if isinstance(violation.rule, NewIds):
            self.conflict = self.conflict or violation.rule
        self.counts.add_all(violation, self._places(violation, images, is_as_staged=is_as_staged))

    # ---- ends whose own record is wrong

    def _told_apart(self, violation: Violation, images: Mapping[TableKey, Image]) -> Iterator[Violation]:
        """A violation; edges to bad records of the load apart from edges to what is nowhere."""
        rule = violation.rule
        refused = self._bad_ids(rule.node) if isinstance(rule, End) else None
        if refused is None or not isinstance(rule, End):
            yield violation
            return
        image = images.get(violation.key) or self.untouched(violation.key)
        nodes = images.get(rule.node) or self.untouched(rule.node)
        references = image.scans(rule.column, is_new=True) + image.scans(rule.column, is_new=False)
        counted = [
            Counted(side=Side.NEW, scans=tuple(references)),
            Counted(side=Side.OLD, scans=tuple(key_scans(nodes.table, None, text_key("id")))),
            Counted(side=Side.REFUSED, keys=refused),
        ]
        tally = Tally(self.engine.quiet, self.folder, small_rows=self.engine.small_rows)
        keys = tally.find(counted, is_missing)
        apart = EndRefused(edge_type=rule.edge_type, column=rule.column, node_type=rule.node_type)
        for told, of_refused in ((rule, False), (apart, True)):
            total, first = _first_keys(keys, of_refused=of_refused)
            if total:
                found = named_examples(rule, image, self.engine.joins.named(references, first))
                yield replace(violation, rule=told, total=total, examples=found.examples)

    def _bad_ids(self, key: TableKey) -> KeyFiles | None:
        files = self.staged.bad_ids.get(key)
        return key_files(self.folder, files) if files else None

    # ---- places

    def _places(self, violation: Violation, images: Mapping[TableKey, Image], *, is_as_staged: bool) -> list[Place]:
        """The records that the examples of a violation came from; of rows that share a value, the last one."""
        key = violation.key
        places = [Place(GRAPH)] * len(violation.examples)
        new = images[key].new if key in images else ()
        addresses: dict[int, int] = {}
        for number, example in enumerate(violation.examples):
            mine = [address for address in example.addresses if address >> 32 in new]
            if mine:
                addresses[number] = mine[-1 if isinstance(violation.rule, Unique) else 0]
        if not addresses:
            return places
        if is_as_staged:
            origins = [self._origin(key, new, address) for address in addresses.values()]
        else:
            ids = read_addresses(images[key].table, "id", list(addresses.values()))
            origins = self._origins_of_ids(key, ids)
        for number, place in zip(addresses, self.staged.provenance.places(key, origins), strict=True):
            places[number] = place
        return places

    def _origin(self, key: TableKey, fragments: Sequence[int], address: int) -> Origin:
        origin = self.staged.types[key].origins[fragments.index(address >> 32)]
        return origin.behind(address & _OFFSET_MASK)

    def _origins_of_ids(self, key: TableKey, ids: Sequence[str]) -> list[Origin]:
        """The origins of the last records with some ids."""
        wanted = pa.array(ids, pa.utf8())
        with appended(self.staged.types[key], self.tables[key], self.objects) as private:
            scans = key_scans(private.table, private.new_fragments, text_key("id"))
            address_of: dict[str, int] = {}
            for some in find_keys(scans, wanted, wanted):
                for name, address in zip(texts(some["key"]), np.asarray(some["address"]).tolist(), strict=True):
                    address_of[name] = max(address, address_of.get(name, address))
        return [self._origin(key, private.new_fragments, address_of[name]) for name in ids]


def _first_keys(keys: BrokenKeys, *, of_refused: bool) -> tuple[int, list[str]]:
    """How many rows have keys of bad records, or have other keys, and the first of these keys."""
    total = 0
    first: list[str] = []
    for batch in keys.batches():
        is_refused = pc.greater(batch.column("refused"), 0)
        some = batch.filter(is_refused if of_refused else pc.invert(is_refused))
        total += pc.sum(some.column("new")).as_py() or 0
        first = sorted([*first, *map(str, some.column("key").to_pylist())])[:MAX_EXAMPLES]
    return total, first
