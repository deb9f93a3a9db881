"""Short ways to compile, refuse and migrate small schemas."""

from __future__ import annotations

import pytest

from omnigraph.errors import CompilerError, Diagnostic
from omnigraph.lang.schema.accepted import AcceptedSchema, fresh_identities
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.lang.schema.plan import MigrationPlan, plan_migration
from omnigraph.lang.schema.steps import Step

DOMAIN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def catalog_of(text: str, *, accepted: bool = False) -> Catalog:
    return compile_schema(text, accepted=accepted).catalog


def hash_of(text: str) -> str:
    return catalog_of(text).schema_hash


def findings_of(text: str, *, accepted: bool = False) -> tuple[Diagnostic, ...]:
    with pytest.raises(CompilerError) as failure:
        compile_schema(text, accepted=accepted)
    return failure.value.diagnostics


def codes_of(text: str, *, accepted: bool = False) -> list[str]:
    return [finding.code for finding in findings_of(text, accepted=accepted)]


def accept(text: str) -> AcceptedSchema:
    compiled = compile_schema(text, accepted=True)
    resolution = fresh_identities(compiled.catalog, DOMAIN, compiled.source)
    return AcceptedSchema(catalog=compiled.catalog, identities=resolution.identities)


def migrate(old: str | AcceptedSchema, new: str, *, allow_data_loss: bool = False) -> MigrationPlan:
    accepted = accept(old) if isinstance(old, str) else old
    wanted = compile_schema(new)
    return plan_migration(accepted, wanted, allow_data_loss=allow_data_loss)


def apply(old: str | AcceptedSchema, new: str) -> AcceptedSchema:
    plan = migrate(old, new)
    return AcceptedSchema(catalog=catalog_of(new), identities=plan.resolution.identities)


def kinds_of(steps: tuple[Step, ...]) -> list[str]:
    return [step.kind for step in steps]
