"""The schemas of a graph: the accepted one in three control files, and those of the past in their commits.

The manifest names the schema of every state by a hash over its contract, so also by its stable ids: a type that was
dropped and declared again makes another schema, although it reads the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property, lru_cache

from omnigraph.commit.publisher import Manifest
from omnigraph.core.ids import TableKey
from omnigraph.core.source import SourceText
from omnigraph.errors import NotFoundError, OmniError, StorageError, StorageFailure
from omnigraph.frozen import frozen
from omnigraph.lang.schema.accepted import (
    AcceptedSchema,
    Identities,
    read_contract,
    shape_hash,
    write_contract,
    write_state,
)
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.lang.schema.rules import TableRules
from omnigraph.storage.location import SCHEMA_CONTRACT, SCHEMA_SOURCE, SCHEMA_STATE, STAGING_SUFFIX
from omnigraph.storage.objects import ControlObjects

#: How the hashes of the schema files are spelled.
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


@frozen(kw_only=True, slots=False)
class GraphSchema:
    """The accepted schema with everything derived from it."""

    source: str
    accepted: AcceptedSchema

    @cached_property
    def rules(self) -> Mapping[TableKey, TableRules]:
        """The rules that every row has to satisfy; only writers need them."""
        from omnigraph.lang.schema.rules import derive_rules

        return derive_rules(self.accepted.catalog)

    @cached_property
    def hash(self) -> str:
        """The hash by which the manifest refers to this schema."""
        return shape_hash(write_contract(self.accepted))

    def is_called(self, schema_hash: str) -> bool:
        """Whether the manifest means this schema; graphs of before contracts were hashed name the shape alone."""
        return schema_hash in (self.hash, self.catalog.schema_hash)

    def files(self) -> dict[str, bytes]:
        """The three control files by name."""
        return {
            SCHEMA_SOURCE: self.source.encode(),
            SCHEMA_CONTRACT: _json(write_contract(self.accepted)),
            SCHEMA_STATE: _json(write_state(self.accepted, self.source)),
        }

    @property
    def catalog(self) -> Catalog:
        """The resolved types."""
        return self.accepted.catalog

    @property
    def identities(self) -> Identities:
        """The stable numbers of types and properties."""
        return self.accepted.identities


def write_schema_files(objects: ControlObjects, schema: GraphSchema) -> None:
    """Write the three files of a new graph."""
    for name, data in schema.files().items():
        objects.write(name, data)


def read_schema_files(objects: ControlObjects, schema_hash: str, *, staged: bool = False) -> GraphSchema:
    """The accepted schema, if the files are the ones that the manifest names.

    With `staged` the files of a schema change that is published, but whose files do not have their real names yet.

    Raises:
        NotFoundError: a file is missing.
        StorageError: the files are damaged, or describe another schema.
        BadRequestError: the source was edited by hand.
    """
    suffix = STAGING_SUFFIX if staged else ""
    try:
        source = _read(objects, f"{SCHEMA_SOURCE}{suffix}").decode()
    except UnicodeDecodeError as error:
        raise _damaged(SCHEMA_SOURCE, error) from error
    schema = _compiled(source, _read(objects, f"{SCHEMA_CONTRACT}{suffix}"))
    state = _json_object(SCHEMA_STATE, _read(objects, f"{SCHEMA_STATE}{suffix}"))
    wanted = write_state(schema.accepted, source)
    # Comments and layout of the source may be edited: its meaning is what the hashes pin.
    is_same = all(state.get(name) == wanted[name] for name in ("schema_hash", "contract_hash"))
    if not is_same or not _HASH.fullmatch(str(state.get("source_hash"))):
        raise _damaged(SCHEMA_STATE, "its hashes are not those of the other schema files")
    if not schema.is_called(schema_hash):
        raise StorageError(
            f"{SCHEMA_SOURCE} is not the schema that the manifest has published", StorageFailure.PERMANENT
        )
    return schema


def find_schema(objects: ControlObjects, manifest: Manifest, schema_hash: str) -> GraphSchema:
    """The schema that the manifest names for some state, present or past.

    Raises:
        NotFoundError: a file is missing.
        StorageError: the files are damaged, or describe another schema.
        BadRequestError: the source was edited by hand.
    """
    failures: list[OmniError] = []
    # The files of a pending change may get their real names at this moment, by another process.
    for is_staged in (False, True, False):
        try:
            return read_schema_files(objects, schema_hash, staged=is_staged)
        except OmniError as error:
            failures.append(error)
    found = _find_past(objects, manifest, schema_hash)
    if found is None:
        # What is wrong with the files under their real names.
        raise failures[0]
    return found


def _find_past(objects: ControlObjects, manifest: Manifest, schema_hash: str) -> GraphSchema | None:
    """A schema out of the commit that accepted it.

    The present one has to be in its files, unless they are those of another schema of this graph: then they were
    not edited: a change that lost its lock came late and gave its own files their names.
    """
    heads = manifest.state().heads.values()
    if any(head.schema_hash == schema_hash for head in heads) and not _are_files_late(objects, manifest):
        return None
    for commit in manifest.commits().values():
        if commit.schema_hash == schema_hash and commit.schema_source is not None:
            return _compiled(commit.schema_source, str(commit.schema_contract).encode())
    return None


def _are_files_late(objects: ControlObjects, manifest: Manifest) -> bool:
    for commit in manifest.commits().values():
        if commit.schema_source is not None:
            try:
                read_schema_files(objects, commit.schema_hash)
            except OmniError:
                continue
            return True
    return False


@lru_cache(32)
def _compiled(source: str, contract: bytes) -> GraphSchema:
    """The schema of two files. Compiling takes most of the time of an open: graphs opened again share what it made."""
    compiled = compile_schema(SourceText(source, SCHEMA_SOURCE), accepted=True)
    accepted = read_contract(_json_object(SCHEMA_CONTRACT, contract), compiled.catalog)
    return GraphSchema(source=source, accepted=accepted)


def _read(objects: ControlObjects, name: str) -> bytes:
    stored = objects.read(name)
    if stored is None:
        raise NotFoundError(f"the graph lacks its file {name}")
    return stored.data


def _json_object(name: str, data: bytes) -> dict[str, object]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, error) from error
    if not isinstance(body, dict):
        raise _damaged(name, "it is not a JSON object")
    return body


def _damaged(name: str, why: object) -> StorageError:
    return StorageError(f"{name} is damaged: {why}", StorageFailure.PERMANENT)


def _json(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, indent=1, ensure_ascii=False, sort_keys=True).encode()
