"""A load from its input to staged writes: stages in their order, each thing that it leaves behind written down.

    read → shape → check values → identify → write fragments → check relations → commit protocol

Input is read once (`stage`). `prepare` does what depends on the state of the graph, and is repeated when that moved.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    BadRequestError,
    InternalError,
    LoadKeyConflictError,
    LoadRejectedError,
    LoadReport,
    StorageError,
)
from omnigraph.lang.schema.rules import TableRules, rule_name
from omnigraph.pipeline.keys import new_id_prefix
from omnigraph.pipeline.load.exclusions import Exclusions
from omnigraph.pipeline.load.prepared import LeftOut, PreparedLoad, Rewritten
from omnigraph.pipeline.load.quarantine import Quarantined, write_quarantine
from omnigraph.pipeline.load.relations import Relations, Staged, StagedType, appended
from omnigraph.pipeline.load.staging import FrameTask, StageItem, likely_types, stage_part
from omnigraph.pipeline.patch.files import PatchFile
from omnigraph.pipeline.patch.job import PatchJob
from omnigraph.pipeline.shape.embedding import LoadEmbedding
from omnigraph.pipeline.shape.leniency import Duplicates, Leniency
from omnigraph.pipeline.shape.plan import LoadPlan
from omnigraph.pipeline.shape.shaping import alias_conflicts
from omnigraph.pipeline.sources.parts import Part, by_source
from omnigraph.pipeline.sources.planning import (
    Frame,
    LoadInput,
    chosen_columns,
    frame_source,
    partition_name,
    plan_work,
)
from omnigraph.pipeline.sources.provenance import Origin, Piece, RecordNumbers
from omnigraph.pipeline.upsert import ClearItem, LoadMode, Upserted, clear_fragment
from omnigraph.pipeline.violations import Image, Place, ViolationCounts, in_file
from omnigraph.pipeline.worker_set import WorkerSet
from omnigraph.pipeline.workers import LocalWorkers, Message, Silent, Workers, detail
from omnigraph.storage.datasets.fragments import Ledgers, fragment_rows, remove_written, stage_replacement
from omnigraph.storage.datasets.partitions import table_address
from omnigraph.storage.datasets.staged import PrivateVersion, StagedWrite, close_private, open_private, stage_fragments
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation
from omnigraph.storage.objects import ControlObjects
from omnigraph.writes.pending import check_cells

_log = logging.getLogger(__name__)


class LoadJob:
    """One load. Not thread-safe; used once, and closed by the caller."""

    def __init__(
        self,
        given: LoadInput,
        plan: LoadPlan,
        mode: LoadMode,
        *,
        rules: Mapping[TableKey, TableRules],
        leniency: Leniency,
        engine: WorkerSet,
        objects: ControlObjects,
        root: GraphLocation,
        checks_minimum: bool = False,
        embedding: LoadEmbedding | None = None,
    ) -> None:
        self._given = given
        self._plan = plan
        self._mode = mode
        self._rules = rules
        self._leniency = leniency
        self._engine = engine
        self._objects = objects
        self._checks_minimum = checks_minimum
        self._embedding = embedding
        #: The input in the pieces that tasks read.
        self._parts: list[Part] = []
        self._frames: list[Frame] = []
        self._staged = Staged(types={})
        self._tables: dict[TableKey, Table] = {}
        self._ledgers = Ledgers.of(root)
        #: Property, as in `Paper.year` → values that the compatible grammar stored as null.
        self.nulled: Counter[str] = Counter()

    @property
    def row_counts(self) -> dict[TableKey, int]:
        """Records of the input per type that is present, without those that are wrong by themselves."""
        return {key: staged.rows - staged.bad for key, staged in self._staged.types.items()}

    # ---- before the graph is looked at

    def plan_parts(self) -> None:
        """Cut the input into parts."""
        self._parts, self._frames = plan_work(
            self._given, self._engine.workers.parallelism, self._engine.frames, is_strict=self._plan.is_strict
        )
        reach(Failpoint.LOAD_PLANNED)

    def likely_types(self) -> set[TableKey]:
        """The types that are declared to be present, or appear where parts of graph records begin. Reads little."""
        if self._given.source is None:
            return self._given.declared_types
        items = [StageItem(part, self._plan) for part in self._parts]
        answers = self._engine.workers.run("look for types", likely_types, items)
        return {TableKey(key) for answer in answers for key in answer["types"]}

    # ---- read, shape, check values, write fragments

    def stage(
        self, tables: Mapping[TableKey, Table], open_more: Callable[[Iterable[TableKey]], Mapping[TableKey, Table]]
    ) -> None:
        """Read the whole input and write its good records as fragments of the tables; bad ones are counted.

        `open_more` gives the tables of types that appear without being among them; parts that have them are read again.

        Raises:
            InputFileError: a file is gone or damaged.
            SparkError: a task failed on every try.
        """
        self._open_more = open_more
        self._plan = replace(self._plan, ledgers=self._ledgers.folder, keeps_bad=self._leniency.quarantines)
        self._place(tables)
        self._stage_once()
        aliases = self._found_aliases
        if aliases:
            # Edges that name a node by an old spelling of its id are read again with the canonical one.
            self._remove_fragments()
            self._plan = replace(self._plan, aliases=aliases)
            self._stage_once()
        reach(Failpoint.LOAD_FRAGMENTS_WRITTEN)

    def _place(self, tables: Mapping[TableKey, Table]) -> None:
        """Let fragments of more types be written into their tables."""
        self._tables |= tables
        targets = {key: table_address(table) for key, table in self._tables.items()}
        self._plan = replace(self._plan, targets=targets)

    def _stage_parts(self, parts: Sequence[Part]) -> list[Message]:
        """The answers about all parts, in their order."""
        found: dict[int, Message] = {}
        left = list(parts)
        while left:
            with self._embedding_plan(self._engine.workers) as plan:
                items = [StageItem(part, plan) for part in left]
                answers = self._engine.workers.run("write fragments", stage_part, items)
            self._count_embedded(answers)
            found |= {part.number: answer for part, answer in zip(left, answers, strict=True)}
            left = [part for part in left if "unplaced" in found[part.number]]
            new = {TableKey(key) for part in left for key in found[part.number]["unplaced"]}
            if new:
                self._place(self._open_more(new))
        return [found[part.number] for part in parts]

    @contextmanager
    def _embedding_plan(self, workers: Workers) -> Iterator[LoadPlan]:
        """The plan of tasks that write fragments: they embed the texts that lack vectors."""
        if self._embedding is None:
            yield self._plan
            return
        with self._embedding.inside(workers) as inside:
            yield replace(self._plan, embedding=inside)

    def _count_embedded(self, answers: Iterable[Message]) -> None:
        for answer in answers:
            if self._embedding is not None and answer["embedding"] is not None:
                self._embedding.count(answer["embedding"])

    def _stage_once(self) -> None:
        self._staged = Staged(types={key: StagedType() for key in self._given.declared_types})
        self.nulled.clear()
        found: list[tuple[TableKey, dict[str, str]]] = []
        answers = self._stage_parts(self._parts)
        lines_before = self._lines_before(answers)
        external = sum(int(answer["external"]) for answer in answers)
        for part, answer in zip(self._parts, answers, strict=True):
            before = lines_before[part.number]
            piece = Piece(
                source=part.file.path,
                unit=answer["unit"],
                rest=answer["rest"],
                before=before,
                lines=int(answer["lines"]),
                part=part,
            )
            self._take(answer, piece, found)
        for frame in self._frames:
            plan = replace(self._plan, id_prefix=new_id_prefix())
            source = frame_source(frame, plan)
            workers = LocalWorkers(self._engine.progress) if frame.is_local else self._engine.workers
            columns = chosen_columns(frame, source, self._engine.frames)
            with self._embedding_plan(workers) as embedding:
                task = FrameTask(source, replace(plan, embedding=embedding.embedding))
                messages = workers.run_batches("write fragments", task, columns)
            self._count_embedded(messages)
            external += sum(int(answer["external"]) for answer in messages)
            for answer in sorted(messages, key=lambda item: int(item["part"])):
                name = partition_name(source, int(answer["part"]))
                lines, kept = int(answer["lines"]), str(answer["kept"])
                piece = Piece(source=name, unit=answer["unit"], lines=lines, frame=frame.mapped, kept=kept)
                self._take(answer, piece, found)
        try:
            self._found_aliases = alias_conflicts(found)
        except ValueError as error:
            raise BadRequestError(f"the load was refused, nothing was written: {error}") from error
        check_cells(external)

    def _lines_before(self, answers: Sequence[Message]) -> dict[int, int]:
        """The lines of its file before each part: tasks count within their part."""
        found: dict[int, int] = {}
        for parts in by_source(self._parts):
            before = 0
            for part in parts:
                found[part.number] = part.first_record if part.groups else before
                before += int(answers[part.number]["lines"])
        return found

    def _take(self, answer: Message, piece: Piece, aliases: list[tuple[TableKey, dict[str, str]]]) -> None:
        staged, folder = self._staged, self._ledgers.folder
        self._ledgers.count([answer["ledger"]])
        self.nulled.update(answer["nulled"])
        numbers = {
            TableKey(name): RecordNumbers.from_message(body["numbers"], folder)
            for name, body in answer["types"].items()
        }
        number = staged.provenance.add(replace(piece, numbers=numbers))
        for name, body in answer["types"].items():
            one = staged.types.setdefault(TableKey(name), StagedType())
            one.rows += int(body["rows"])
            one.bad += int(body["bad"])
            one.has_given_ids |= bool(body["given_ids"])
            row = 0
            for fragment in body["fragments"]:
                one.fragments.append(fragment)
                one.origins.append(Origin(number, row))
                row += fragment_rows(fragment)
            for file in map(PatchFile.from_message, body["patches"]):
                one.patches.append(file)
                one.origins.append(Origin(number, row))
                row += file.rows
        for name, count in answer["refused"].items():
            one = staged.types.setdefault(TableKey(name), StagedType())
            one.rows += int(count)
            one.bad += int(count)
        staged.rejects.extend((number, name) for name in answer["rejects"])
        for name, files in answer["bad_ids"].items():
            staged.bad_ids.setdefault(TableKey(name), []).extend(files)
        staged.unnamed.update(answer["unnamed"])
        if answer["violations"] is not None:
            some = ViolationCounts.from_message(answer["violations"])
            some.relocate(lambda record: in_file(record, piece.before, piece.unit))
            staged.violations.merge(some)
        for key, pairs in answer["aliases"].items():
            aliases += [(TableKey(key), {old: canonical}) for old, canonical in pairs]

    # ---- identify, check relations

    def prepare(self, tables: Mapping[TableKey, Table], open_pinned: Callable[[TableKey], Table]) -> PreparedLoad:
        """Decide what the load does to the tables as they are now, and check every rule between rows.

        Raises:
            LoadRejectedError: records are wrong, or a rule between them is violated.
            LoadKeyConflictError: an append met ids that exist.
        """
        if self._mode is LoadMode.PATCH:
            return self._prepare_patch(tables, open_pinned)
        read: set[TableKey] = set()

        def untouched(key: TableKey) -> Image:
            read.add(key)
            return Image(table=open_pinned(key))

        nothing = LeftOut()
        prepared, relations = self._attempt(tables, untouched, nothing, {})
        try:
            if any(self._leniency.forgives(key, rule) for key, rule in relations.violated):
                left_out = self._exclusions(tables, untouched, relations).find()
                self.abandon(prepared)
                prepared, relations = self._attempt(tables, untouched, left_out, self._cleared(tables, left_out))
            self._refuse_emptying(relations, prepared)
            self._refuse(relations)
            reach(Failpoint.LOAD_CHECKED)
        except BaseException:
            # Also after an interrupt: nothing else knows what was prepared.
            self.abandon(prepared)
            raise
        return replace(prepared, read=frozenset(read))

    def _attempt(
        self,
        tables: Mapping[TableKey, Table],
        untouched: Callable[[TableKey], Image],
        left_out: LeftOut,
        rewritten: dict[TableKey, Rewritten],
    ) -> tuple[PreparedLoad, Relations]:
        """Prepare the load without some rows, and hold it against the rules between rows."""
        types = {key: _kept(staged, rewritten.get(key)) for key, staged in self._staged.types.items()}
        is_upsert, is_overwrite = self._mode is LoadMode.UPSERT, self._mode is LoadMode.OVERWRITE
        touched = {key: staged for key, staged in types.items() if staged.fragments or is_overwrite}
        upserted: dict[TableKey, Upserted] = {}
        writes: dict[TableKey, StagedWrite] = {}
        privates: list[PrivateVersion] = []
        relations = Relations(
            staged=self._staged,
            tables=tables,
            untouched=untouched,
            mode=self._mode,
            rules=self._rules,
            engine=self._engine,
            objects=self._objects,
            folder=self._ledgers.folder,
            checks_minimum=self._checks_minimum,
            is_rewritten=bool(rewritten),
        )
        prepared = PreparedLoad(
            writes=writes, read=frozenset(), left_out=left_out, upserted=upserted, rewritten=rewritten
        )
        try:
            shown = self._engine.progress if is_upsert else Silent()
            with shown.stage("identify", 1) as stage, self._engine.inner.inside(stage):
                self._identify(touched, tables, relations, upserted, writes)
                stage.update(1, sum(types[key].rows for key in upserted))
            reach(Failpoint.LOAD_IDENTIFIED)
            images: dict[TableKey, Image] = {}
            for key, write in writes.items():
                plain = self._plain_image(key, tables[key], touched[key], upserted.get(key))
                private = open_private(write if plain is None else plain)
                privates.append(private)
                images[key] = self._image(key, private, upserted.get(key))
            with self._engine.progress.stage("check relations", 1) as stage, self._engine.inner.inside(stage):
                relations.check(images)
                repeated = relations.repeated_edges(images)
                stage.update(1, sum(staged.rows for staged in touched.values()))
        except BaseException:
            # Also after an interrupt: nothing else knows these files.
            self.abandon(prepared)
            raise
        finally:
            for private in privates:
                self._quietly(close_private, private, self._objects)
        # Not before: what a preparation wrote that failed is not needed.
        self._ledgers.count(prepared.ledgers)
        return replace(prepared, repeated=repeated), relations

    # ---- what is left out

    def _exclusions(
        self, tables: Mapping[TableKey, Table], untouched: Callable[[TableKey], Image], relations: Relations
    ) -> Exclusions:
        return Exclusions(
            staged=self._staged,
            tables=tables,
            untouched=untouched,
            mode=self._mode,
            rules=self._rules,
            leniency=self._leniency,
            engine=self._engine,
            objects=self._objects,
            folder=self._ledgers.folder,
            violated=relations.violated,
        )

    def _prepare_patch(
        self, tables: Mapping[TableKey, Table], open_pinned: Callable[[TableKey], Table]
    ) -> PreparedLoad:
        types = {key: staged for key, staged in self._staged.types.items() if staged.patches}
        provenance = self._staged.provenance
        job = PatchJob(
            files={key: staged.patches for key, staged in types.items()},
            sources={key: provenance.of_rows(key, dict(enumerate(staged.origins))) for key, staged in types.items()},
            plan=self._plan,
            rules=self._rules,
            leniency=self._leniency,
            engine=self._engine,
            objects=self._objects,
            folder=self._ledgers.folder,
            violations=self._staged.violations,
            checks_minimum=self._checks_minimum,
        )
        found = job.prepare(tables, open_pinned)
        self._ledgers.count(name for item in found.changes.values() for name in item.ledgers)
        left_out = LeftOut(
            superseded=found.superseded,
            bad=found.bad,
            bad_records=found.bad.total(),
            counts=found.violations,
            rejects=[name for item in found.matched.values() for name in item.rejects],
        )
        return PreparedLoad(
            writes=found.writes, read=found.read, left_out=left_out, patched=found.counts, changes=found.changes
        )

    def _cleared(self, tables: Mapping[TableKey, Table], left_out: LeftOut) -> dict[TableKey, Rewritten]:
        """The fragments of types that lose rows; those that have them are written again."""
        found: dict[TableKey, Rewritten] = {}
        for key, rows in left_out.rows.items():
            if not len(rows):
                continue
            staged = self._staged.types[key]
            with appended(staged, tables[key], self._objects) as private:
                source, target = table_address(private.table), table_address(tables[key])
                items = {
                    text: ClearItem(
                        staged=source, target=target, fragment=number, dropped=dropped, ledgers=self._ledgers.folder
                    )
                    for number, text in zip(private.new_fragments, staged.fragments, strict=True)
                    if len(dropped := rows.offsets(number))
                }
                answers = self._engine.workers.run("leave out rows", clear_fragment, list(items.values()))
            left = dict(zip(items, answers, strict=True))
            found[key] = Rewritten(
                fragments=tuple(
                    one for text in staged.fragments for one in (left[text]["fragments"] if text in left else [text])
                ),
                discarded=tuple(left),
                ledgers=frozenset(str(answer["ledger"]) for answer in answers),
            )
        return found

    def _identify(
        self,
        touched: Mapping[TableKey, StagedType],
        tables: Mapping[TableKey, Table],
        relations: Relations,
        upserted: dict[TableKey, Upserted],
        writes: dict[TableKey, StagedWrite],
    ) -> None:
        """Fill in what happens to every touched table; what an upsert wrote is in `upserted` also when it fails."""
        for key, staged in touched.items():
            self._engine.inner.tell(key.name)
            if self._mode is LoadMode.UPSERT and staged.has_given_ids:
                with detail(key.name):
                    upserted[key] = self._upsert(key, tables[key], staged, relations)
                writes[key] = _upsert_write(tables[key], upserted[key])
            else:
                is_overwrite = self._mode is LoadMode.OVERWRITE
                writes[key] = stage_fragments(tables[key], staged.fragments, overwrite=is_overwrite)

    def _upsert(self, key: TableKey, table: Table, staged: StagedType, relations: Relations) -> Upserted:
        with appended(staged, table, self._objects) as private:
            if self._leniency.duplicates_of(key) is not Duplicates.LAST:
                relations.check_duplicates(key, private)
            counts_edges = self._rules[key].per_source is not None
            return self._engine.matcher.upsert(
                table, private, staged.fragments, with_sources=counts_edges, ledgers=self._ledgers.folder
            )

    def _plain_image(
        self, key: TableKey, table: Table, staged: StagedType, upserted: Upserted | None
    ) -> StagedWrite | None:
        """The rows of an upsert behind the old ones, when no rule compares them with old ones.

        Lance needs about a second per twenty million rows to make a version in which rows keep their ids; once, for
        the commit, is enough.
        """
        rules = self._rules[key]
        if upserted is None or upserted.superseded or rules.uniques or rules.per_source is not None:
            return None
        return stage_fragments(table, staged.fragments)

    def _image(self, key: TableKey, private: PrivateVersion, upserted: Upserted | None) -> Image:
        return Image(
            table=private.table,
            new=private.new_fragments,
            # An upsert has distinct ids already.
            has_given_ids=self._staged.types[key].has_given_ids and upserted is None,
            is_replaced=self._mode is LoadMode.OVERWRITE,
            old_sources=() if upserted is None else upserted.old_sources,
        )

    def _refuse_emptying(self, relations: Relations, prepared: PreparedLoad) -> None:
        """Refuse an overwrite by bad records alone: it would leave nothing of a type."""
        for key, staged in self._staged.types.items() if self._mode is LoadMode.OVERWRITE else ():
            refused = prepared.left_out.bad[key]
            if self._leniency.quarantines and staged.bad + refused and staged.bad + refused == staged.rows:
                rule = f"no good record of {key.name}"
                text = f"{rule}: all {staged.rows:,} are bad, and an overwrite would leave none"
                relations.counts.add(Place("input"), rule, text, type_key=key)

    def _refuse(self, relations: Relations) -> None:
        """Report what is wrong with records and between them, if anything is."""
        counts = ViolationCounts()
        counts.merge(self._staged.violations)
        counts.merge(relations.counts)
        if not (relations.counts if self._leniency.quarantines else counts):
            return
        report, conflict = counts.report(), relations.conflict
        if conflict is None or self._staged.violations:
            raise LoadRejectedError(report)
        first = next(item for item in report.examples if item.rule == rule_name(conflict))
        raise LoadKeyConflictError(conflict.kind, conflict.type_name, str(first.value), report)

    # ---- bad records

    def bad_records(self, prepared: PreparedLoad) -> int:
        """The number of bad records: wrong by themselves, or refused by a rule between records."""
        return self._staged.violations.records + prepared.left_out.bad_records

    def report(self, prepared: PreparedLoad) -> LoadReport | None:
        """What is wrong with the records that are left out; None when there are none."""
        counts = ViolationCounts()
        counts.merge(self._staged.violations)
        counts.merge(prepared.left_out.counts)
        return counts.report() if counts else None

    def write_quarantine(self, prepared: PreparedLoad, scratch: str, place: Callable[[str, str], Path]) -> Quarantined:
        """Write all bad records; tasks write to `scratch`, and `place` moves what counts to its name.

        Raises:
            InputFileError: a file is gone, damaged, or another one than when it was read.
        """
        found = write_quarantine(
            self._staged,
            prepared.left_out.rejects,
            is_strict=self._plan.is_strict,
            scratch=scratch,
            place=place,
            engine=self._engine,
            folder=self._ledgers.folder,
        )
        if found.records != (expected := self.bad_records(prepared)):
            raise InternalError(f"{expected:,} records are bad, and {found.records:,} of them are in the quarantine")
        return found

    # ---- leaving nothing behind

    def abandon(self, prepared: PreparedLoad) -> None:
        """Remove what a preparation wrote; the fragments of the input stay for the next one."""
        self._ledgers.discount(prepared.ledgers)
        for key, upserted in prepared.upserted.items():
            self._remove(key, upserted.shrunk.values())
        for written in (prepared.upserted, prepared.rewritten):
            for key, item in written.items():
                staged = set(self._staged.types[key].fragments)
                self._remove(key, [text for text in item.fragments if text not in staged])
        for key, patched in prepared.changes.items():
            self._remove(key, patched.texts)

    def finish(self, prepared: PreparedLoad) -> None:
        """The load is committed: remove fragments that were written again."""
        for written in (prepared.upserted, prepared.rewritten):
            for key, item in written.items():
                self._remove(key, item.discarded)

    def close(self, *, is_committed: bool) -> None:
        """Remove every file that no version refers to: all of them when the load did not happen."""
        self._ledgers.close(is_committed=is_committed)

    def _remove_fragments(self) -> None:
        for key, staged in self._staged.types.items():
            self._remove(key, staged.fragments)

    def _remove(self, key: TableKey, written: Iterable[str | None]) -> None:
        table = self._tables.get(key)
        for text in () if table is None else written:
            self._quietly(remove_written, table, [text])

    def _quietly(self, remove: Callable[..., None], *what: object) -> None:
        """Remove something; what stays is reclaimed by cleanup and must not hide how the load ended."""
        try:
            remove(*what)
        except StorageError as error:
            _log.warning("a staged file stays until cleanup: %s", error)


def _upsert_write(table: Table, upserted: Upserted) -> StagedWrite:
    if upserted.shrunk:
        return stage_replacement(table, upserted.fragments, upserted.shrunk)
    # Nothing is replaced: a plain append is cheaper to commit and to follow.
    return stage_fragments(table, upserted.fragments)


def _kept(staged: StagedType, rewritten: Rewritten | None) -> StagedType:
    """A staged type without the rows that are left out."""
    return staged if rewritten is None else replace(staged, fragments=list(rewritten.fragments), origins=[])
