"""The schema language (`.pg`): text → syntax tree → catalog, and plans from one schema to another.

Owns: the grammar, every static check, interfaces, the catalog, the shape hash, stable identities, migration plans and
the persisted contract. Never reads data and never touches storage. Start reading at `compiler`; `plan` explains
migrations.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_exports
from omnigraph.schema.accepted import AcceptedSchema
from omnigraph.schema.catalog import (
    Cardinality,
    Catalog,
    CheckRule,
    EdgeDef,
    Embedding,
    IndexKind,
    InterfaceDef,
    MemberSet,
    NodeDef,
    PropertyDef,
    Provenance,
    RangeRule,
    TypeKind,
    index_kinds,
    unbuilt_indexes,
)
from omnigraph.schema.compiler import (
    CompiledSchema,
    as_compiled,
    compile_schema,
    compile_schema_file,
)
from omnigraph.schema.contract import IR_VERSION, read_contract, write_contract, write_state
from omnigraph.schema.identity import Identities, Resolution, fresh_identities, resolve_identities

if TYPE_CHECKING:
    from omnigraph.schema.plan import MigrationPlan, plan_migration
    from omnigraph.schema.printer import print_schema

__all__ = [
    "IR_VERSION",
    "AcceptedSchema",
    "Cardinality",
    "Catalog",
    "CheckRule",
    "CompiledSchema",
    "EdgeDef",
    "Embedding",
    "Identities",
    "IndexKind",
    "InterfaceDef",
    "MemberSet",
    "MigrationPlan",
    "NodeDef",
    "PropertyDef",
    "Provenance",
    "RangeRule",
    "Resolution",
    "TypeKind",
    "as_compiled",
    "compile_schema",
    "compile_schema_file",
    "fresh_identities",
    "index_kinds",
    "plan_migration",
    "print_schema",
    "read_contract",
    "resolve_identities",
    "unbuilt_indexes",
    "write_contract",
    "write_state",
]

__getattr__ = late_exports(
    __name__,
    {"MigrationPlan": "plan", "plan_migration": "plan", "print_schema": "printer"},
)
