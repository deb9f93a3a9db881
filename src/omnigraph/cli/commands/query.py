"""`omnigraph query`, `mutate`, `explain`, `lint` and `alias`."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from omnigraph.cli.command_line import Argument, Option
from omnigraph.cli.config import Alias, Defaults, config_path, read_operator_config
from omnigraph.cli.console import print_json, print_result, print_text, print_warning
from omnigraph.cli.flags import (
    AsJson,
    Branch,
    CommitNote,
    OptionalSchemaFile,
    Point,
    QueryName,
    Quiet,
    ReadBranch,
    Timeout,
)
from omnigraph.cli.input import (
    ASK_ABOVE,
    STORED,
    ParameterFlags,
    QuerySource,
    confirmed,
    parameters_of,
    parameters_of_stored,
)
from omnigraph.cli.rendering import receipt_lines
from omnigraph.cli.rows import RowFlags, print_rows
from omnigraph.cli.scope import Address, connect, server_scope
from omnigraph.cli.scoped import scoped
from omnigraph.cli.tables import MAX_COLUMN_WIDTH, CellLayout, TableLayout, counted

if TYPE_CHECKING:
    from omnigraph.api.results import MutationResult
    from omnigraph.core.source import SourceText
    from omnigraph.lang.query.describe.lint import LintReport


# ---- `omnigraph query`


@scoped("query")
def query(
    address: Address,
    *,
    name: QueryName = None,
    source: QuerySource,
    parameters: ParameterFlags,
    point: Point,
    timeout: Timeout = None,
    rows: RowFlags,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Run one read query on a branch head, a commit, a graph version or a moment.

    With a source, NAME selects the query inside it; without one, it is a stored query of a server.
    """
    defaults = address.config.defaults
    form = rows.form(defaults.output, json=json)
    state = point.arguments()
    if sum(item is not None for item in (point.snapshot, point.graph_version, point.as_of)) > 1:
        raise click.BadParameter("give one of --snapshot, --graph-version and --as-of")
    text, given = source.text_or(name), parameters.read()
    if isinstance(text, str):
        if point.graph_version is not None or point.as_of is not None:
            raise click.BadParameter("a stored query reads a branch or a --snapshot")
        with address.open_served(STORED) as server:
            values = given.typed(lambda: parameters_of_stored(server, text), text)
            place, commit = state["branch"], state["snapshot"]
            found = server.run(text, values, branch=place, snapshot=commit, expect_mutation=False, timeout_s=timeout)
            print_rows(found, form, table_layout(defaults), quiet=quiet)
        return
    with address.open(read_only=True) as graph:
        values = given.typed(lambda: parameters_of(graph, text, name, **state), name)
        result = graph.query(text, values, name=name, timeout_s=timeout, **state)
        print_rows(result, form, table_layout(defaults), quiet=quiet)


def table_layout(defaults: Defaults) -> TableLayout:
    """The layout of tables that is configured."""
    return TableLayout(
        defaults.table_max_column_width or MAX_COLUMN_WIDTH, defaults.table_cell_layout or CellLayout.TRUNCATE
    )


# ---- `omnigraph mutate`


@scoped("mutate")
def mutate(
    address: Address,
    *,
    name: QueryName = None,
    source: QuerySource,
    parameters: ParameterFlags,
    branch: Branch = "main",
    if_commit: Annotated[
        str | None, Option("--if-commit", metavar="ID", help="run only while the branch head is ID")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="show what would change, write nothing")] = False,
    yes: Annotated[
        bool, Option("--yes", help=f"change more than {ASK_ABOVE:,} nodes and edges without being asked")
    ] = False,
    note: CommitNote,
    json: AsJson = False,
) -> None:
    """Run one mutation query; all of it becomes visible at once, or nothing does.

    With a source, NAME selects the query inside it; without one, it is a stored query of a server.
    """
    text, given, reason = source.text_or(name), parameters.read(), note.arguments()
    actor = address.actor
    asks = sys.stdin.isatty() and sys.stderr.isatty() and not (yes or json or dry_run)
    if isinstance(text, str):
        with address.open_served(STORED) as server:
            values = given.typed(lambda: parameters_of_stored(server, text), text)

            def invoke(bound: int | None) -> MutationResult:
                return server.run(
                    text,
                    values,
                    branch=branch,
                    expect_mutation=True,
                    if_commit=if_commit,
                    max_affected=bound,
                    dry_run=dry_run,
                    **reason,
                )

            result = confirmed(invoke, asks=asks)
    else:
        with address.open(read_only=dry_run) as graph:
            values = given.typed(lambda: parameters_of(graph, text, name, branch=branch), name)

            def change(bound: int | None) -> MutationResult:
                return graph.mutate(
                    text,
                    values,
                    name=name,
                    branch=branch,
                    actor=actor,
                    if_commit=if_commit,
                    max_affected=bound,
                    dry_run=dry_run,
                    **reason,
                )

            result = confirmed(change, asks=asks)
    print_result(result, receipt_lines(result), json=json)


# ---- `omnigraph explain`


@scoped("explain")
def explain(
    address: Address,
    *,
    name: QueryName = None,
    schema: OptionalSchemaFile = None,
    source: QuerySource,
    parameters: ParameterFlags,
    branch: ReadBranch = None,
    analyze: Annotated[bool, Option("--analyze", help="run the query, show rows and time per operator")] = False,
    timeout: Timeout = None,
    json: AsJson = False,
) -> None:
    """Print what a query means, one operator per line; with a graph also how it would run there."""
    from omnigraph.lang.query.compiler import compile_query
    from omnigraph.lang.query.describe.explain import explain_ir
    from omnigraph.lang.schema.compiler import compile_schema_file

    if schema is not None and address.is_explicit:
        raise click.BadParameter("give --schema FILE or a graph, not both")
    text, given = source.text(), parameters.read()
    if schema is not None:
        if analyze or parameters.are_given or branch is not None:
            raise click.BadParameter("--analyze, --params and --branch need a graph, not --schema")
        catalog = compile_schema_file(schema).catalog
        compiled = compile_query(text, catalog, name)
        plan = explain_ir(compiled.ir)
    else:
        with address.open(read_only=True) as graph:
            place = branch or "main"
            values = given.typed(lambda: parameters_of(graph, text, name, branch=place), name)
            plan = graph.explain(text, values, name=name, branch=place, analyze=analyze, timeout_s=timeout)
            catalog = graph.catalog()
        compiled = compile_query(text, catalog, name)
    if not json:
        print_text(plan)
        return
    print_json(
        {
            "query_name": compiled.name,
            "kind": "mutation" if compiled.is_mutation else "read",
            "plan": plan.splitlines(),
            "operation": compiled.operation.to_json(),
        }
    )


# ---- `omnigraph lint`


@scoped("lint")
def lint(address: Address, source: QuerySource, schema: OptionalSchemaFile = None, json: AsJson = False) -> None:
    """Check queries of a file or a text against a schema, or against the accepted one of a graph; or a schema alone.

    Prints one line per query, then warnings and a total. Exits with 1 when a query or the schema has an error.
    """
    if schema is not None and address.is_explicit:
        raise click.BadParameter("give --schema FILE or a graph, not both")
    if schema is not None:
        report = lint_file(schema, source.text() if source.is_given else None)
    elif source.is_given:
        report = lint_graph(address, source.text())
    else:
        raise click.BadParameter("give a query with --query FILE or -e GQ, --schema FILE, or both")
    print_result(report, report_lines(report), json=json)
    if report.errors:
        raise Exit(1)


def lint_file(schema: Path, text: SourceText | None) -> LintReport:
    """The lint report of queries against a schema file, or of the schema file alone."""
    from omnigraph.embedding.on_write import no_embedding
    from omnigraph.lang.query.describe.lint import lint_queries, lint_schema
    from omnigraph.lang.schema.compiler import compile_schema_file

    compiled = compile_schema_file(schema)
    if text is None:
        return lint_schema(compiled, str(schema))
    for warning in compiled.warnings:
        print_warning(warning.render())
    return lint_queries(text, compiled.catalog, str(schema), no_embedding=no_embedding(compiled.catalog))


def lint_graph(address: Address, text: SourceText) -> LintReport:
    """The lint report of queries against the accepted schema of a graph."""
    from omnigraph.embedding.on_write import no_embedding
    from omnigraph.lang.query.describe.lint import lint_queries

    with address.open_storage(read_only=True) as graph:
        catalog = graph.catalog()
    return lint_queries(text, catalog, address.uri, no_embedding=no_embedding(catalog))


def report_lines(report: LintReport) -> Iterator[str]:
    """The report as a person reads it."""
    if report.query_path is None:
        yield f"OK    schema {report.schema_source}"
    for result in report.results:
        word = "ERROR" if result.diagnostics else "OK"
        yield f"{word:<5} {result.kind} {result.name}"
        for diagnostic in result.diagnostics:
            yield diagnostic.render()
        yield from _unlisted(result.diagnostic_total - len(result.diagnostics))
    for finding in report.findings:
        if finding.severity == "error" and finding.diagnostic is not None:
            yield finding.diagnostic.render()
            continue
        code = f"{finding.code}: " if finding.code else ""
        yield f"WARN  {code}{finding.message}"
        yield f"      at {report.query_path or report.schema_source}:{finding.line}:{finding.column}"
    yield from _unlisted(report.unlisted)
    counts = [counted(report.errors, "error", form="d"), counted(report.warnings, "warning", form="d")]
    if report.query_path is not None:
        counts.insert(0, counted(len(report.results), "query", "queries", form="d"))
    yield ", ".join(counts)


def _unlisted(number: int) -> Iterator[str]:
    if number > 0:
        yield f"… and {counted(number, 'more error', form='d')}"


# ---- `omnigraph alias`


@scoped("alias")
def alias(
    name: Annotated[str, Argument(metavar="NAME", help="an alias of your configuration")],
    args: Annotated[
        list[str] | None, Argument(metavar="ARGS", help="values, in the order of the alias: JSON, else text")
    ] = None,
    *,
    parameters: ParameterFlags,
    rows: RowFlags,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Run the stored read query that an alias of your configuration stands for."""
    rows.check(json=json)
    config = read_operator_config()
    found = config.aliases.get(name)
    if found is None:
        known = ", ".join(sorted(config.aliases)) or "none"
        raise click.BadParameter(f"there is no alias `{name}` in {config_path()}: it has {known}")
    form = rows.form(found.format or config.defaults.output, json=json)
    given = parameters.read()
    with connect(server_scope(found.server, config, found.graph), config) as graph:
        values = given.typed(lambda: parameters_of_stored(graph, found.query), found.query)
        result = graph.run(found.query, alias_params(name, found, args or [], values), expect_mutation=False)
        print_rows(result, form, table_layout(config.defaults), quiet=quiet)


def alias_params(name: str, alias: Alias, args: Sequence[str], given: Mapping[str, object]) -> dict[str, object]:
    """The parameters of a call: what is given by name goes before arguments, and those before what is fixed.

    Raises:
        click.BadParameter: there are more arguments than the alias has names for.
    """
    if len(args) > len(alias.args):
        names = ", ".join(alias.args) or "none"
        raise click.BadParameter(f"alias `{name}` takes {len(alias.args)} arguments ({names}), not {len(args)}")
    positional = {key: _value(text) for key, text in zip(alias.args, args, strict=False)}
    return {**alias.params, **positional, **given}


def _value(text: str) -> object:
    try:
        return json_text.loads(text)
    except (ValueError, RecursionError):
        return text
