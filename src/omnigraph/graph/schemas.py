"""The accepted schema of a graph: its three control files, read and written together."""

from __future__ import annotations

import json
from dataclasses import dataclass
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
from omnigraph.writes import derive_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.ids import TableKey
    from omnigraph.schema import Catalog, Identities
    from omnigraph.storage import ControlObjects
    from omnigraph.writes import TableRules


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSchema:
    """The accepted schema with everything derived from it."""

    source: str
    accepted: AcceptedSchema
    rules: Mapping[TableKey, TableRules]

    @property
    def catalog(self) -> Catalog:
        """The resolved types."""
        return self.accepted.catalog

    @property
    def identities(self) -> Identities:
        """The stable numbers of types and properties."""
        return self.accepted.identities


def graph_schema(source: str, accepted: AcceptedSchema) -> GraphSchema:
    """A schema with its rules derived."""
    return GraphSchema(source=source, accepted=accepted, rules=derive_rules(accepted.catalog))


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
    source = _read(objects, SCHEMA_SOURCE).decode()
    compiled = compile_schema(SourceText(source, SCHEMA_SOURCE), accepted=True)
    try:
        contract = json.loads(_read(objects, SCHEMA_CONTRACT))
    except ValueError as error:
        message = f"{SCHEMA_CONTRACT} is damaged: {error}"
        raise StorageError(message, StorageFailure.PERMANENT) from error
    accepted = read_contract(contract, compiled.catalog)
    if compiled.catalog.schema_hash != schema_hash:
        raise StorageError(
            f"{SCHEMA_SOURCE} is not the schema that the catalog has published",
            StorageFailure.PERMANENT,
        )
    return graph_schema(source, accepted)


def _read(objects: ControlObjects, name: str) -> bytes:
    stored = objects.read(name)
    if stored is None:
        raise NotFoundError(f"the graph lacks its file {name}")
    return stored.data


def _json(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, indent=1, ensure_ascii=False, sort_keys=True).encode()
