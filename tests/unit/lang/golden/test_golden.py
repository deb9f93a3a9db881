"""Golden files: the texts that people and programs see, one file per error code, plan and migration.

schema_errors/<code>-<what>.pg      → .expected: what the compiler says
schema_warnings/<code>-<what>.pg    → .expected: what it warns of
query_errors/<code>-<what>.gq       → .expected: what the compiler says, against reading.pg
plans/<what>.gq                     → .expected: `explain` of every query, against reading.pg
migrations/<what>/old.pg, new.pg    → plan.json (or error.expected when a rename hint or a backfill is wrong); with
                                      backfill.json, and with drops that are hard beside a file `allow-data-loss`
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from omnigraph.core.source import SourceText
from omnigraph.errors import BadRequestError, CompilerError, Severity
from omnigraph.lang.query.compiler import compile_file
from omnigraph.lang.query.describe.explain import explain_ir
from omnigraph.lang.schema.accepted import AcceptedSchema, fresh_identities
from omnigraph.lang.schema.compiler import compile_schema, compile_schema_file
from omnigraph.lang.schema.plan import plan_migration
from omnigraph.lang.schema.steps import Step
from support.subtests import each_case

HERE = Path(__file__).parent
DOMAIN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def _cases(folder: str, pattern: str) -> list[Path]:
    return sorted((HERE / folder).glob(pattern))


def _source(path: Path) -> SourceText:
    return SourceText(path.read_text(encoding="utf-8"), path.name)


def _code(path: Path) -> str:
    parts = path.stem.split("-")
    return "-".join(parts[:2]) if parts[0] == "S" else parts[0]


@each_case("path", _cases("schema_errors", "*.pg"), ids=lambda path: path.stem)
def test_a_wrong_schema_is_explained(path: Path, golden) -> None:
    with pytest.raises(CompilerError) as failure:
        compile_schema(_source(path))
    assert _code(path) in failure.value.codes
    golden(path.with_suffix(".expected"), f"{failure.value}\n")


@pytest.mark.parametrize("path", _cases("schema_warnings", "*.pg"), ids=lambda path: path.stem)
def test_what_a_schema_says_without_effect_is_explained(path: Path, golden) -> None:
    warnings = compile_schema(_source(path)).warnings
    assert {item.code for item in warnings} == {_code(path)}
    shown = "\n".join(item.render() for item in warnings)
    golden(path.with_suffix(".expected"), f"{shown}\n")


@each_case("path", _cases("query_errors", "*.gq"), ids=lambda path: path.stem)
def test_a_wrong_query_is_explained(path: Path, golden, reading) -> None:
    from omnigraph.lang.query.describe.lint import lint_queries

    source = _source(path)
    # Texts are taken to be embedded, but where that is what the file is about.
    reason = "nothing is configured that embeds it" if _code(path) == "L203" else None
    report = lint_queries(source, reading, "reading.pg", no_embedding=reason)
    found = [item for result in report.results for item in result.diagnostics]
    # Warnings stand in the files of their own codes only.
    found += [
        finding.diagnostic
        for finding in report.findings
        if finding.diagnostic and (finding.severity is Severity.ERROR or finding.code == _code(path))
    ]
    assert _code(path) in {item.code for item in found}
    golden(path.with_suffix(".expected"), "\n".join(item.render() for item in found) + "\n")


@each_case("path", _cases("plans", "*.gq"), ids=lambda path: path.stem)
def test_a_plan_is_stable(path: Path, golden, reading) -> None:
    compiled = compile_file(_source(path), reading)
    golden(path.with_suffix(".expected"), "\n".join(explain_ir(query.ir) for query in compiled))


@each_case("folder", _cases("migrations", "*"), ids=lambda path: path.name)
def test_a_migration_plan_is_stable(folder: Path, golden) -> None:
    old = compile_schema_file(folder / "old.pg")
    new = compile_schema(_source(folder / "new.pg"))
    accepted = AcceptedSchema(
        catalog=old.catalog, identities=fresh_identities(old.catalog, DOMAIN, old.source).identities
    )
    given = folder / "backfill.json"
    try:
        plan = plan_migration(
            accepted,
            new,
            allow_data_loss=(folder / "allow-data-loss").exists(),
            backfill=json.loads(given.read_text(encoding="utf-8")) if given.exists() else None,
        )
    except (CompilerError, BadRequestError) as failure:
        golden(folder / "error.expected", f"{failure}\n")
        return
    golden(folder / "plan.json", json.dumps(plan.to_json(), indent=2) + "\n")


def test_every_kind_of_step_and_every_member_of_one_is_in_a_plan() -> None:
    """A member that no plan shows could change its name unnoticed."""
    shown: dict[str, set[str]] = {}
    for path in _cases("migrations", "*/plan.json"):
        for step in json.loads(path.read_text(encoding="utf-8"))["steps"]:
            shown.setdefault(step["kind"], set()).update(step)
    every = {step.kind: {"kind", *(item.name for item in fields(step))} for step in get_args(Step)}
    assert shown == every
