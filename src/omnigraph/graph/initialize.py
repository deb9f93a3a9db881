"""Creating a graph: claim the root, make the empty tables, write the schema files, publish the first commit.

The catalog comes last: until it exists there is no graph, and everything before it may be overwritten by another try.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from omnigraph.errors import (
    AlreadyInitializedError,
    InitializationClaimedError,
    InitializationCommittedError,
    OmniError,
)
from omnigraph.failpoints import Failpoint, reach
from omnigraph.graph.schemas import GraphSchema, write_schema_files
from omnigraph.ids import TableKey, new_ulid
from omnigraph.manifest import GraphCommit, TablePin
from omnigraph.recovery import GraphEnvironment, WriterKind
from omnigraph.schema import AcceptedSchema, CompiledSchema, TypeKind, fresh_identities
from omnigraph.storage import create_table, dataset_exists, table_location
from omnigraph.storage.listing import used_dataset
from omnigraph.storage.location import INIT_CLAIM, MANIFEST, SCHEMA_FILES
from omnigraph.writes import blob_columns, table_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.schema import EdgeDef, NodeDef


def initialize(
    environment: GraphEnvironment,
    compiled: CompiledSchema,
    *,
    actor: str | None = None,
    force: bool = False,
) -> GraphSchema:
    """Create a graph at an unused root.

    Raises:
        AlreadyInitializedError: a graph, or schema files of one, are there; `force` replaces orphan schema files only.
        InitializationClaimedError: another process is at it.
        InitializationCommittedError: the graph exists, but the claim could not be removed.
    """
    location, objects = environment.location, environment.objects
    _refuse_used_root(environment, force=force)
    claim = json.dumps({"operation_id": new_ulid()}).encode()
    if objects.create(INIT_CLAIM, claim) is None:
        raise InitializationClaimedError(str(location), INIT_CLAIM)
    published = False
    try:
        reach(Failpoint.INIT_AFTER_CLAIM)
        # Somebody may have finished between the first look and the claim.
        _refuse_used_root(environment, force=force)
        identities = fresh_identities(compiled.catalog, new_ulid(), compiled.source).identities
        accepted = AcceptedSchema(catalog=compiled.catalog, identities=identities)
        schema = GraphSchema(source=compiled.source.text, accepted=accepted)
        pins = tuple(_create_tables(environment, schema))
        reach(Failpoint.INIT_AFTER_TABLES)
        write_schema_files(objects, schema)
        reach(Failpoint.INIT_AFTER_SCHEMA)
        environment.manifest.create(_genesis(environment, schema, actor), pins)
        published = True
        reach(Failpoint.INIT_AFTER_MANIFEST)
    except BaseException:
        # Also after an interrupt: a claim that stays would lock everybody out.
        if not published:
            objects.delete(INIT_CLAIM)
        raise
    try:
        objects.delete(INIT_CLAIM)
    except OmniError as error:
        raise InitializationCommittedError(str(location), error.message) from error
    return schema


def _refuse_used_root(environment: GraphEnvironment, *, force: bool) -> None:
    location = environment.location
    if dataset_exists(location, MANIFEST):
        raise AlreadyInitializedError(str(location), MANIFEST)
    for folder in ("nodes", "edges"):
        if (used := used_dataset(location, folder)) is not None:
            # What a failed try leaves has one empty version. This is the data of a graph whose catalog is lost.
            raise AlreadyInitializedError(
                str(location),
                f"data in {used}: restore the catalog from a backup, or use another place",
            )
    if force:
        return
    for name in SCHEMA_FILES:
        if environment.objects.read(name) is not None:
            raise AlreadyInitializedError(str(location), f"{name} (use --force to replace it)")


def _create_tables(environment: GraphEnvironment, schema: GraphSchema) -> Iterator[TablePin]:
    for kind, definition in _definitions(schema):
        key = TableKey(definition.table_key)
        identity = schema.identities.types[kind, definition.name]
        path = table_location(key)
        table = create_table(
            environment.location,
            path,
            table_schema(definition),
            blobs=blob_columns(definition),
        )
        yield TablePin(
            table_key=key,
            incarnation=identity.incarnation or 0,
            location=path,
            branch=None,
            version=table.version,
            row_count=0,
        )


def _definitions(schema: GraphSchema) -> Iterator[tuple[TypeKind, NodeDef | EdgeDef]]:
    for node in schema.catalog.nodes.values():
        yield TypeKind.NODE, node
    for edge in schema.catalog.edges.values():
        yield TypeKind.EDGE, edge


def _genesis(environment: GraphEnvironment, schema: GraphSchema, actor: str | None) -> GraphCommit:
    from omnigraph.schema import write_contract

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
