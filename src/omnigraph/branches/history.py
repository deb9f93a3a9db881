"""Looking back: net differences, changes of commits, the change feed, single entities at any point."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.branches.changes import (
    Change,
    ChangesPage,
    CommitChanges,
    PageBudget,
    Position,
    cause_of,
    check_binding,
    commit_changes,
    decode_token,
    encode_token,
)
from omnigraph.branches.deltas import ChangeFilter, DeltaReader, KnownType, State, known_types, make_filter, row_images
from omnigraph.branches.diffs import Diff
from omnigraph.branches.feed import Feed, FeedCall, FeedPage
from omnigraph.branches.three_way import find_row_ids
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.lineage import distances, first_parents
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.schemas import GraphSchema
from omnigraph.commit.snapshot import History, ManifestState, Snapshot, snapshot_of
from omnigraph.commit.targets import check_readable, newest_first, reading_pins, resolve_target
from omnigraph.core.ids import TableKey, check_branch_name, is_ulid
from omnigraph.core.source import with_hint
from omnigraph.errors import BadRequestError, BranchNotFoundError, NotFoundError
from omnigraph.errors.writes import RowImage
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.pipeline.exchange import ScratchPlace
from omnigraph.pipeline.workers import Silent
from omnigraph.spark import ElasticWorkers

_COMMIT_PAGE = "commit-page"


@frozen(kw_only=True)
class Selection:
    """Kinds, types and operations as a caller gave them; None is everything."""

    kinds: Sequence[str] | None = None
    types: Sequence[str] | None = None
    ops: Sequence[str] | None = None


class GraphHistory:
    """Answers questions about the past. Thread-safe; keeps small answers for the next page."""

    def __init__(
        self, environment: GraphEnvironment, schema_of: Callable[[str], GraphSchema], *, is_read_only: bool
    ) -> None:
        self._environment = environment
        self._schema_of = schema_of
        place = ScratchPlace(
            root=environment.location, is_read_only=is_read_only, begin_read=lambda: environment.reading.begin().close
        )
        self._reader = DeltaReader(environment.tables, place)

    def close(self) -> None:
        """Let go of remembered answers, and of their files."""
        self._reader.forget()

    # ---- states

    def find(self, state: ManifestState, name: str) -> Snapshot:
        """The snapshot that a name means: the head of a branch, or a commit of any branch.

        Raises:
            BranchNotFoundError: it is neither.
            NotFoundError: there is no such commit, or its branch was deleted.
        """
        if name in state.heads:
            return snapshot_of(state.heads[name])
        if not is_ulid(name):
            raise BranchNotFoundError(check_branch_name(name), "and it is not the id of a commit")
        return resolve_target(self._environment.manifest, state, Target(snapshot=name))

    def log(self, state: ManifestState, branch: str | None) -> list[GraphCommit]:
        """Everything that one branch, or all of them, build on over both parents; newest first."""
        commits = self._environment.manifest.commits()
        heads = state.heads.values() if branch is None else [state.head(branch)]
        found = distances(commits, *(head.commit_id for head in heads))
        return newest_first(commits[commit_id] for commit_id in found)

    def entity_at(self, state: ManifestState, target: Target, type_key: str, entity_id: str) -> RowImage | None:
        """One entity of one snapshot, or None.

        Raises:
            NotFoundError: there is no such type at that snapshot.
        """
        snapshot = resolve_target(self._environment.manifest, state, target)
        key = _type_named(self._schema_of(snapshot.schema_hash).catalog, type_key)
        known, pin = self._types(snapshot.schema_hash)[key], snapshot.pins[key]
        table = self._reader.open(pin)
        with reading_pins(self._environment.tables, [pin]):
            found = list(find_row_ids(table, [entity_id]).values())
            images = list(row_images(table, known.definition, found).values())
        return {"id": entity_id, **images[0]} if images else None

    # ---- differences

    def diff(self, state: ManifestState, one: str, other: str, selection: Selection, engine: ElasticWorkers) -> Diff:
        """The differences of two states."""
        old, new = self.find(state, one), self.find(state, other)
        filter_ = self._filter(selection, new.schema_hash, old.schema_hash)
        deltas = self._reader.between(
            State(snapshot=old, types=self._types(old.schema_hash)),
            State(snapshot=new, types=self._types(new.schema_hash)),
            filter_,
            engine,
            keeps_files=False,
        )
        return Diff(old=old, new=new, deltas=tuple(deltas))

    # ---- changes

    def changes(
        self, state: ManifestState, commit_id: str, selection: Selection, budget: PageBudget, page_token: str | None
    ) -> ChangesPage:
        """One page of the changes of a commit."""
        history = self._environment.manifest.history()
        commit = check_readable(state, history.commits.get(commit_id), commit_id)
        filter_ = self._filter(selection, commit.schema_hash)
        position = None
        binding = {"t": _COMMIT_PAGE, "c": commit_id, "f": filter_.digest}
        if page_token is not None:
            body = decode_token(page_token)
            sentences = {
                "t": "it is not a page token of a commit",
                "c": "it belongs to another commit",
                "f": "it was made with another filter",
            }
            check_binding(body, {name: (binding[name], text) for name, text in sentences.items()})
            position = Position.from_json(body.get("p"))
        page: list[Change] = []
        for change in self._commit_changes(history, commit, filter_).after(position):
            if not budget.takes(change, is_first=not page):
                last = Position.of(page[-1].type_id, page[-1].id)
                token = encode_token({**binding, "p": last.to_json()})
                return ChangesPage(cause=cause_of(commit), changes=tuple(page), next_page_token=token)
            page.append(change)
        return ChangesPage(cause=cause_of(commit), changes=tuple(page))

    def poll(self, state: ManifestState, branch: str, selection: Selection, call: FeedCall) -> FeedPage:
        """One page of the feed of a branch."""
        return self._feed(state, branch, selection).poll(call)

    def cursor_at_head(self, state: ManifestState, branch: str, selection: Selection) -> str:
        """The cursor behind everything that a branch holds in a state."""
        return self._feed(state, branch, selection).cursor_at(state.head(branch).commit_id)

    def _feed(self, state: ManifestState, branch: str, selection: Selection) -> Feed:
        head = state.head(branch)
        history = self._environment.manifest.history()
        filter_ = self._filter(selection, head.schema_hash)
        return Feed(
            genesis=next(c for c, commit in history.commits.items() if commit.parent_id is None),
            line=list(first_parents(history.commits, head.commit_id))[::-1],
            head=head,
            filter=filter_,
            changes_of=lambda commit: self._commit_changes(
                history, commit, filter_.under(self._names(head.schema_hash, commit.schema_hash))
            ),
        )

    def _commit_changes(self, history: History, commit: GraphCommit, filter_: ChangeFilter) -> CommitChanges:
        return commit_changes(
            history,
            commit,
            filter_,
            types_of=self._types,
            reader=self._reader,
            engine=ElasticWorkers("auto", None, Silent()),
        )

    def _types(self, schema_hash: str) -> dict[TableKey, KnownType]:
        return known_types(self._schema_of(schema_hash).accepted)

    def _names(self, schema_hash: str, other_hash: str) -> dict[TableKey, TableKey]:
        """The types that two schemas have in common: from the key in the one to the key in the other."""
        here, there = (
            {identity.type_id: TableKey(f"{kind}:{name}") for (kind, name), identity in types.items()}
            for types in (self._schema_of(schema_hash).identities.types, self._schema_of(other_hash).identities.types)
        )
        return {key: there[number] for number, key in here.items() if number in there}

    def _filter(self, selection: Selection, *schema_hashes: str) -> ChangeFilter:
        """The filter that a caller means, who may name the types of these schemas."""
        catalogs = [self._schema_of(schema_hash).catalog for schema_hash in schema_hashes]
        return make_filter(catalogs, selection.kinds, selection.types, selection.ops)


def _type_named(catalog: Catalog, name: str) -> TableKey:
    """The type that a table key, or a name that only one type has, means."""
    matching = catalog.keys_named(name)
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise BadRequestError(f"`{name}` is a node and an edge type: write {' or '.join(matching)}")
    raise NotFoundError(with_hint(f"there is no type {name} at this snapshot", name, catalog.types))
