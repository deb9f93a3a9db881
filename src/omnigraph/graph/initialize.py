"""Creating a graph: claim the root, make the empty tables, write the schema files, publish the first commit.

The manifest comes last: until it exists there is no graph, and everything before it may be overwritten by another try.
The claim is a lock on disk and a lease on an object store, so that a process that dies blocks no other for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from omnigraph.commit.rows import MAIN, GraphCommit, TablePin
from omnigraph.commit.schemas import GraphSchema, write_schema_files
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.targets import pin_of
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import (
    AlreadyInitializedError,
    InitializationClaimedError,
    InitializationCommittedError,
    OmniError,
    RetryableCommitConflictError,
)
from omnigraph.lang.schema.accepted import AcceptedSchema, fresh_identities
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef, TypeKind
from omnigraph.lang.schema.compiler import CompiledSchema
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.staged import create_table
from omnigraph.storage.datasets.tables import dataset_exists
from omnigraph.storage.lease import Tenure
from omnigraph.storage.location import INIT_CLAIM, MANIFEST, SCHEMA_FILES, table_location
from omnigraph.storage.locks import held_file
from omnigraph.storage.objects import replace_content, used_dataset
from omnigraph.writes.columns import blob_columns, table_schema

if TYPE_CHECKING:
    from omnigraph.commit.environment import GraphEnvironment


def initialize(
    environment: GraphEnvironment, compiled: CompiledSchema, *, actor: str | None = None, force: bool = False
) -> GraphSchema:
    """Create a graph at an unused root.

    Raises:
        AlreadyInitializedError: a graph, or schema files of one, are there; `force` replaces orphan schema files only.
        InitializationClaimedError: another process is at it.
        InitializationCommittedError: the graph exists, but the claim could not be removed.
    """
    location = environment.location
    _refuse_used_root(environment, force=force)
    with _claimed_root(environment) as claim:
        reach(Failpoint.INIT_AFTER_CLAIM)
        # Another process may have finished between the first look and the claim.
        _refuse_used_root(environment, force=force)
        identities = fresh_identities(compiled.catalog, new_ulid(), compiled.source).identities
        accepted = AcceptedSchema(catalog=compiled.catalog, identities=identities)
        schema = GraphSchema(source=compiled.source.text, accepted=accepted)
        pins = tuple(_create_tables(environment, schema))
        reach(Failpoint.INIT_AFTER_TABLES)
        _write_schema_files(environment, schema, claim)
        reach(Failpoint.INIT_AFTER_SCHEMA)
        claim.check()
        environment.manifest.create(_genesis(environment, schema, actor), pins)
        reach(Failpoint.INIT_AFTER_MANIFEST)
        try:
            _withdraw_claim(environment, claim)
        except OmniError as error:
            raise InitializationCommittedError(str(location), error.message) from error
    return schema


@contextmanager
def _claimed_root(environment: GraphEnvironment) -> Iterator[Tenure]:
    """Be the only one that creates a graph here. The claim of a process that died ends by itself."""
    location = environment.location
    with ExitStack() as stack:
        try:
            if location.is_local:
                with translated(f"creating {location}"):
                    location.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(held_file(location.path / INIT_CLAIM))
                claim: Tenure = Tenure()
            else:
                claim = stack.enter_context(environment.claim_remotely(INIT_CLAIM))
        except RetryableCommitConflictError as error:
            raise InitializationClaimedError(str(location)) from error
        try:
            yield claim
        except BaseException:
            # Also after an interrupt: the place is as it was.
            with suppress(OmniError):
                _withdraw_claim(environment, claim)
            raise


def _write_schema_files(environment: GraphEnvironment, schema: GraphSchema, claim: Tenure) -> None:
    objects = environment.objects
    if environment.location.is_local:
        write_schema_files(objects, schema)
        return
    for name, data in schema.files().items():
        current = objects.read(name)
        # After the look: a process that took the claim over and writes later than this changes the tag.
        claim.check()
        if not replace_content(objects, name, data, None if current is None else current.tag):
            raise InitializationClaimedError(str(environment.location))


def _withdraw_claim(environment: GraphEnvironment, claim: Tenure) -> None:
    """Remove the claim while it is held; on disk its lock does that."""
    if not environment.location.is_local and not claim.is_lost:
        environment.objects.delete(INIT_CLAIM)


def _refuse_used_root(environment: GraphEnvironment, *, force: bool) -> None:
    location = environment.location
    if dataset_exists(location, MANIFEST):
        raise AlreadyInitializedError(
            str(location),
            f"it holds {_described(environment)}, and nothing was changed; use the graph as it is, change its schema "
            "with `omnigraph schema apply`, or give another place for a new graph",
        )
    for folder in ("nodes", "edges"):
        if (used := used_dataset(location, folder)) is not None:
            # What a failed try leaves has one empty version. This is the data of a graph whose manifest is lost.
            raise AlreadyInitializedError(
                str(location),
                f"it has data in {used} and no manifest; restore the manifest from a backup, or give another place",
            )
    if force:
        return
    for name in SCHEMA_FILES:
        if environment.objects.read(name) is not None:
            found = f"it has the schema file {name} and no graph; use --force to replace it"
            raise AlreadyInitializedError(str(location), found)


def _described(environment: GraphEnvironment) -> str:
    """The graph at a root in a few words, as far as it can be read."""
    try:
        pins = environment.manifest.state().head(MAIN).pins
    except OmniError:
        return "a graph"
    types = "1 type" if len(pins) == 1 else f"{len(pins):,} types"
    rows = sum(pin.row_count for pin in pins.values())
    return f"a graph of {types} with {rows:,} {'entity' if rows == 1 else 'entities'}"


def _create_tables(environment: GraphEnvironment, schema: GraphSchema) -> Iterator[TablePin]:
    for kind, definition in _definitions(schema):
        key = TableKey(definition.table_key)
        identity = schema.identities.types[kind, definition.name]
        path = table_location(key)
        if environment.lock.can_be_lost:
            # An init whose claim ended may come late: no other process ever uses its places.
            path = f"{path}-{new_ulid().lower()}"
        table = create_table(environment.location, path, table_schema(definition), blobs=blob_columns(definition))
        yield pin_of(table, key, identity.incarnation or 0)


def _definitions(schema: GraphSchema) -> Iterator[tuple[TypeKind, NodeDef | EdgeDef]]:
    for node in schema.catalog.nodes.values():
        yield TypeKind.NODE, node
    for edge in schema.catalog.edges.values():
        yield TypeKind.EDGE, edge


def _genesis(environment: GraphEnvironment, schema: GraphSchema, actor: str | None) -> GraphCommit:
    from omnigraph.lang.schema.accepted import write_contract

    return GraphCommit(
        commit_id=new_ulid(),
        graph_version=1,
        branch="main",
        parent_id=None,
        created_at=environment.clock(),
        kind=str(WriterKind.INIT),
        operation_id=new_ulid(),
        schema_hash=schema.hash,
        actor=actor,
        schema_source=schema.source,
        schema_contract=json.dumps(write_contract(schema.accepted), sort_keys=True),
    )
