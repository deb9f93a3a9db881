"""The accepted schema of a graph: its three control files, read and written together."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph.errors import NotFoundError, StorageError, StorageFailure
from omnigraph.schema import (
    AcceptedSchema,
    compile_schema,
    read_contract,
    write_contract,
    write_state,
)
from omnigraph.storage.location import SCHEMA_CONTRACT, SCHEMA_SOURCE, SCHEMA_STATE
from omnigraph.syntax import SourceText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.ids import TableKey
    from omnigraph.schema import Catalog, Identities
    from omnigraph.storage import ControlObjects
    from omnigraph.writes import TableRules


@dataclass(frozen=True, kw_only=True)
class GraphSchema:
    """The accepted schema with everything derived from it."""

    source: str
    accepted: AcceptedSchema

    @cached_property
    def rules(self) -> Mapping[TableKey, TableRules]:
        """What every row has to satisfy; asked for by writers only."""
        from omnigraph.writes import derive_rules

        return derive_rules(self.accepted.catalog)

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
    objects.write(SCHEMA_SOURCE, schema.source.encode())
    objects.write(SCHEMA_CONTRACT, _json(write_contract(schema.accepted)))
    objects.write(SCHEMA_STATE, _json(write_state(schema.accepted, schema.source)))


def read_schema_files(objects: ControlObjects, schema_hash: str) -> GraphSchema:
    """The accepted schema, if the files are the ones that the catalog names.

    Raises:
        NotFoundError: a file is missing.
        StorageError: the files are damaged, or describe another schema.
        BadRequestError: the source was edited by hand.
    """
    try:
        source = _read(objects, SCHEMA_SOURCE).decode()
    except UnicodeDecodeError as error:
        raise _damaged(SCHEMA_SOURCE, error) from error
    compiled = compile_schema(SourceText(source, SCHEMA_SOURCE), accepted=True)
    accepted = read_contract(_read_json(objects, SCHEMA_CONTRACT), compiled.catalog)
    state, wanted = _read_json(objects, SCHEMA_STATE), write_state(accepted, source)
    # Comments and layout of the source may be edited: its meaning is what the hashes pin.
    if any(state.get(name) != wanted[name] for name in ("schema_hash", "contract_hash")):
        raise _damaged(SCHEMA_STATE, "its hashes are not those of the other schema files")
    if compiled.catalog.schema_hash != schema_hash:
        raise StorageError(
            f"{SCHEMA_SOURCE} is not the schema that the catalog has published",
            StorageFailure.PERMANENT,
        )
    return GraphSchema(source=source, accepted=accepted)


def _read(objects: ControlObjects, name: str) -> bytes:
    stored = objects.read(name)
    if stored is None:
        raise NotFoundError(f"the graph lacks its file {name}")
    return stored.data


def _read_json(objects: ControlObjects, name: str) -> dict[str, object]:
    try:
        body = json.loads(_read(objects, name))
    except ValueError as error:
        raise _damaged(name, error) from error
    if not isinstance(body, dict):
        raise _damaged(name, "it is no JSON object")
    return body


def _damaged(name: str, why: object) -> StorageError:
    return StorageError(f"{name} is damaged: {why}", StorageFailure.PERMANENT)


def _json(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, indent=1, ensure_ascii=False, sort_keys=True).encode()
