"""The context of load tasks, and external blobs of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum

import pyarrow

from omnigraph.core.arrow import Array, pa
from omnigraph.core.env_settings import WholeNumber
from omnigraph.core.ids import TableKey
from omnigraph.core.types import BaseType
from omnigraph.core.values import MANAGED
from omnigraph.errors import ExternalBlobPolicyError, ResourceLimitError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.accepted import Identities
from omnigraph.lang.schema.catalog import Catalog, EmbeddedVector, embedded_vectors, member_base
from omnigraph.lang.schema.rules import TableRules, ValueRule
from omnigraph.pipeline.shape.embedding import TaskEmbedding
from omnigraph.storage.answers import AnswerFolder
from omnigraph.storage.datasets.partitions import TableAddress
from omnigraph.storage.external import DENY_ALL, ExternalPolicy
from omnigraph.writes.columns import TypeDef

# ---- External blobs of a load
#
# Which of both is decided by the mode: an overwrite keeps references, whatever adds to existing rows copies the
# bytes. A task looks at its own records; the number of them is bounded for the whole load.


EXTERNAL_BLOB_MAX_BYTES = WholeNumber(
    "OMNIGRAPH_EXTERNAL_BLOB_MAX_BYTES",
    256 * 1024 * 1024,
    "External blobs that one task of a load copies at once.",
    lowest=1,
)
#: Records that are shaped together when their external blobs are copied: all bytes are in memory at once.
COPIED_TOGETHER = 16


@frozen(kw_only=True)
class ExternalRule:
    """The rule of a load for external blobs. Plain values: it travels to tasks."""

    policy: ExternalPolicy = DENY_ALL
    keeps_references: bool = False
    max_bytes: int = EXTERNAL_BLOB_MAX_BYTES.default

    @property
    def copies(self) -> bool:
        """Whether any bytes may be copied."""
        return bool(self.policy.bases) and not self.keeps_references


def external_rule(policy: ExternalPolicy, *, is_overwrite: bool) -> ExternalRule:
    """The rule of one load."""
    return ExternalRule(policy=policy, keeps_references=is_overwrite, max_bytes=EXTERNAL_BLOB_MAX_BYTES.read())


def is_cell_parts(kind: pyarrow.DataType) -> bool:
    """Whether a column has the form in which an export writes bytes and addresses side by side."""
    return isinstance(kind, pyarrow.StructType) and set(kind.names) == {"data", "uri"}


def cell_values(column: Array) -> list[object]:
    """Such a column as plain values: bytes, or the text of an address. What has both stays as it is, and is refused."""
    return [_cell_value(value) for value in column.to_pylist()]


def _cell_value(value: Mapping[str, object] | None) -> object:
    if value is None:
        return None
    data, uri = value["data"], value["uri"]
    if data is not None and uri is not None:
        return value
    return uri if data is None else data


def external_texts(values: list[object]) -> dict[int, str]:
    """The values that are addresses of external blobs, by position."""
    return {
        place: value for place, value in enumerate(values) if isinstance(value, str) and not value.startswith(MANAGED)
    }


def with_external(stored: Array, texts: Mapping[int, str], rule: ExternalRule) -> tuple[Array, dict[int, str]]:
    """A column of cells with those of external blobs filled in, and violation texts about addresses, by position.

    Raises:
        ExternalBlobSourceError: an allowed address cannot be read.
        ResourceLimitError: the bytes to copy are too many.
    """
    from omnigraph.storage.external import copied_cells, referring_cells

    allowed, violations = {}, {}
    for place, text in texts.items():
        try:
            allowed[place] = rule.policy.check(text)
        except ExternalBlobPolicyError as error:
            violations[place] = f"the external blob is refused: {error.reason}"
        except ResourceLimitError as error:
            violations[place] = f"the external blob is refused: {error.message}"
    uris = list(allowed.values())
    found = referring_cells(uris) if rule.keeps_references else copied_cells(uris, rule.max_bytes)
    cells = stored.to_pylist()
    for place, cell in zip(allowed, found, strict=True):
        cells[place] = cell
    return pa.array(cells, pa.large_binary()), violations


# ---- The context of load tasks


class Grammar(StrEnum):
    """The strictness of the JSONL reader."""

    STRICT = "strict"
    COMPATIBLE = "compatible"


@frozen(kw_only=True)
class EndType:
    """The type at one end of an edge, as far as its ids are concerned."""

    name: str
    #: Key members in id order with their types; empty for a type whose ids are not derived.
    members: tuple[tuple[str, BaseType], ...]


@frozen(kw_only=True)
class EntityShape:
    """One type as tasks know it."""

    definition: TypeDef
    #: Key members in id order; empty when ids are given or generated.
    key_members: tuple[str, ...]
    value_rules: tuple[ValueRule, ...]
    #: Source and target of an edge type.
    ends: tuple[EndType, EndType] | None = None
    #: The vectors that are made of texts where records lack them.
    vectors: tuple[EmbeddedVector, ...] = ()

    @property
    def key(self) -> TableKey:
        """The table key of the type."""
        return self.definition.table_key

    @property
    def key_bases(self) -> list[BaseType]:
        """The types of the key members."""
        return [member_base(self.definition, name) for name in self.key_members]

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.definition.name


@frozen(kw_only=True)
class LoadPlan:
    """Everything that stays the same over all tasks of one load."""

    shapes: Mapping[TableKey, EntityShape]
    #: Lower-case names of edge types: the format does not care about their case.
    edge_words: Mapping[str, TableKey]
    grammar: Grammar
    #: The first 16 characters of every generated id; see `keys`.
    id_prefix: str
    #: Where fragments go; a type that is not here must not appear.
    targets: Mapping[TableKey, TableAddress] = field(default_factory=dict)
    #: Old spellings of ids → canonical ids, per node type (compatible grammar only).
    aliases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    external: ExternalRule = field(default_factory=ExternalRule)
    #: Where tasks note which files they have written.
    ledgers: AnswerFolder | None = None
    #: Whether bad records are kept, with everything that is wrong with them.
    keeps_bad: bool = False
    #: Whether records give only the properties that change, of rows that exist.
    is_patch: bool = False
    #: Whether records of a patch may also be new rows.
    inserts_unknown: bool = False
    #: How tasks make the vectors that records lack; None where nothing is made.
    embedding: TaskEmbedding | None = None
    #: Whether rows that exist lend their vectors to records of the same id and text.
    keeps_vectors: bool = False

    @property
    def is_strict(self) -> bool:
        """Whether anything unusual is an error."""
        return self.grammar is Grammar.STRICT


def shapes_of(
    catalog: Catalog,
    identities: Identities,
    rules: Mapping[TableKey, TableRules],
    *,
    embeds: Callable[[EmbeddedVector], bool] | None = None,
) -> dict[TableKey, EntityShape]:
    """The shapes of all types of a schema; `embeds` says which vectors records get from their texts."""

    def end(name: str) -> EndType:
        node = catalog.nodes[name]
        members = identities.key_members(node)
        return EndType(name=name, members=tuple((m, node.properties[m].type.base) for m in members))

    found: dict[TableKey, EntityShape] = {}
    for node in catalog.nodes.values():
        found[node.table_key] = EntityShape(
            definition=node,
            key_members=identities.key_members(node),
            value_rules=rules[node.table_key].values,
            vectors=() if embeds is None else tuple(filter(embeds, embedded_vectors(node))),
        )
    for edge in catalog.edges.values():
        found[edge.table_key] = EntityShape(
            definition=edge,
            key_members=identities.key_members(edge),
            value_rules=rules[edge.table_key].values,
            ends=(end(edge.source), end(edge.target)),
        )
    return found
