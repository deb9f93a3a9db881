"""`omnigraph init` and `schema`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from omnigraph.cli.command_line import Argument, Option
from omnigraph.cli.commands.infer import init_from_data
from omnigraph.cli.console import print_json, print_result, print_text, print_warning, terminal_progress
from omnigraph.cli.flags import AsJson, CommitNote, Consent, EngineChoice, OnError, Quiet, SchemaFile
from omnigraph.cli.rendering import commit_text
from omnigraph.cli.scope import Address, storage_uri
from omnigraph.cli.scoped import CommandGroup, scoped
from omnigraph.cli.tables import counted
from omnigraph.pipeline.engine_choice import Engine

if TYPE_CHECKING:
    from omnigraph.lang.schema.plan import MigrationPlan


# ---- `omnigraph init`


FromData = Annotated[
    list[str] | None,
    Option(
        "--from-data",
        metavar="FOLDER",
        help="propose a schema from files and load them; a folder, a file or a pattern; may be given again",
        show_default=False,
    ),
]
OptionalSchemaFile = Annotated[
    Path | None, Option("--schema", metavar="FILE", help="schema file (.pg)", show_default=False)
]


@scoped("init")
def init(
    uri: Annotated[str, Argument(metavar="URI", help="where the graph will be")],
    schema: OptionalSchemaFile = None,
    from_data: FromData = None,
    force: Annotated[
        bool, Option("--force", help="replace orphan schema files, and those of a proposal; never erases a graph")
    ] = False,
    on_error: OnError = None,
    yes: Annotated[bool, Option("--yes", help="with --from-data, do not ask")] = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Create a graph: its manifest, one empty dataset per type, and the schema files.

    With --from-data the schema is proposed from files, and the graph is loaded with them.
    """
    from omnigraph.core.ids import new_ulid
    from omnigraph.graph.graph import Graph
    from omnigraph.lang.schema.accepted import fresh_identities
    from omnigraph.lang.schema.compiler import compile_schema_file

    root = storage_uri(uri, "the address")
    if from_data and schema is None:
        init_from_data(root, from_data, on_error=on_error, force=force, yes=yes, quiet=quiet, json=json)
        return
    if from_data or schema is None:
        raise click.BadParameter("give one of --schema FILE and --from-data FOLDER")
    if on_error is not None:
        raise click.BadParameter("--on-error is about records, and only --from-data brings some")
    compiled = compile_schema_file(schema)
    hints = fresh_identities(compiled.catalog, new_ulid(), compiled.source)
    for warning in (*compiled.warnings, *hints.warnings):
        print_warning(warning.render())
    with Graph.init(root, compiled, force=force) as graph:
        document = {"uri": graph.uri, "commit": graph.snapshot().commit_id}
        print_result(document, [f"initialized {graph.uri}"], json=json)


# ---- `omnigraph schema`


app = CommandGroup(help="Look at schemas and change them.")

AllowDataLoss = Annotated[bool, Option("--allow-data-loss", help="drops are hard: what they drop is destroyed")]
Backfills = Annotated[
    list[str] | None,
    Option(
        "--backfill",
        metavar="T.P=VALUE",
        help="value of existing rows for a new or required property; may be given again",
        show_default=False,
    ),
]


@app.register("show")
@scoped("schema show")
def show(address: Address, json: AsJson = False) -> None:
    """Print the accepted schema of a graph."""
    with address.open(read_only=True) as graph:
        source = graph.schema
    if json:
        print_json({"schema_source": source})
    else:
        print_text(source)


app.register("get", hidden=True)(show)


#: The exit code of a plan that cannot be applied: a condition that does not hold.
_UNSUPPORTED = 4


@app.register("plan")
@scoped("schema plan")
def plan(
    schema: SchemaFile,
    address: Address,
    from_: Annotated[Path | None, Option("--from", metavar="OLD", help="a schema file instead of a graph")] = None,
    allow_data_loss: AllowDataLoss = False,
    backfill: Backfills = None,
    json: AsJson = False,
) -> None:
    """Show the steps from the accepted schema of a graph, or from a file, to another schema, without effect.

    Exits with 4 when a change is not supported: applying the plan would be refused.
    """
    fills = _backfills(backfill)
    if from_ is None:
        with address.open_storage(read_only=True) as graph:
            result = graph.plan_schema(schema, allow_data_loss=allow_data_loss, backfill=fills)
    elif address.is_explicit:
        raise click.BadParameter("give a graph or --from, not both")
    else:
        result = plan_files(from_, schema, allow_data_loss=allow_data_loss, backfill=fills)
    for warning in result.warnings:
        print_warning(warning.render())
    origin = {"uri": address.uri} if from_ is None else {"uri": None, "from": str(from_)}
    print_result({**origin, **result.to_json()}, plan_lines(result), json=json)
    if not result.supported:
        raise Exit(_UNSUPPORTED)


@app.register("apply")
@scoped("schema apply")
def apply(
    schema: SchemaFile,
    address: Address,
    allow_data_loss: AllowDataLoss = False,
    backfill: Backfills = None,
    engine: EngineChoice = Engine.AUTO,
    *,
    note: CommitNote,
    yes: Consent = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Make a schema the accepted one, with all tables, in one commit; or change nothing."""
    actor = address.actor
    if engine is not Engine.AUTO:
        address.refuse_on_server("--engine")
    fills, reason = _backfills(backfill), note.arguments()
    if allow_data_loss:
        address.require_consent("destroys what the schema drops in", yes=yes, json=json)
    address.echo("schema apply to", quiet=quiet)
    with address.open(read_only=False) as graph:
        result = graph.apply_schema(
            schema,
            allow_data_loss=allow_data_loss,
            backfill=fills,
            actor=actor,
            **reason,
            engine=engine.value,
            progress=terminal_progress(quiet=quiet),
        )
    for warning in result.plan.warnings:
        print_warning(warning.render())
    lines = [step.describe() for step in result.plan.steps]
    if result.commit is None:
        lines.append("no changes")
    else:
        lines.append(
            f"{counted(len(lines), 'step', form='d')} applied, commit {commit_text(result.commit.commit_id)} on main"
        )
    print_result(result.to_json() | {"uri": address.text}, lines, json=json)


@app.register("diff")
@scoped("schema diff")
def diff(
    address: Address,
    from_: Annotated[str | None, Option("--from", metavar="COMMIT", help="a commit; the first one if left out")] = None,
    to: Annotated[str, Option("--to", metavar="COMMIT", help="a commit or branch")] = "main",
    json: AsJson = False,
) -> None:
    """Show how the accepted schema changed between two commits."""
    with address.open_storage(read_only=True) as graph:
        start = from_ or graph.commits()[-1].commit_id
        found = graph.diff_schema(start, to)
    document = {"from": start, "to": to, "steps": found.plan.to_json()["steps"]}
    print_result(document, list(found.lines(start, to)) or ["no changes"], json=json)


def _backfills(assignments: list[str] | None) -> dict[str, object]:
    from omnigraph.lang.schema.backfill import split_backfill

    fills: dict[str, object] = {}
    for target, text in map(split_backfill, assignments or ()):
        if target in fills:
            raise click.BadParameter(f"the backfill of {target} is given twice")
        fills[target] = text
    return fills


def plan_files(
    old: Path, new: Path, *, allow_data_loss: bool = False, backfill: Mapping[str, object] | None = None
) -> MigrationPlan:
    """The plan between two schema files; no graph is needed."""
    from omnigraph.core.ids import new_ulid
    from omnigraph.lang.schema.accepted import AcceptedSchema, fresh_identities
    from omnigraph.lang.schema.compiler import compile_schema_file
    from omnigraph.lang.schema.plan import plan_migration

    before, after = compile_schema_file(old), compile_schema_file(new)
    identities = fresh_identities(before.catalog, new_ulid(), before.source).identities
    accepted = AcceptedSchema(catalog=before.catalog, identities=identities)
    return plan_migration(accepted, after, allow_data_loss=allow_data_loss, backfill=backfill)


def plan_lines(plan: MigrationPlan) -> Iterator[str]:
    """The plan as a person reads it."""
    if not plan.steps:
        yield "no changes"
        return
    yield from (step.describe() for step in plan.steps)
    steps = counted(len(plan.steps), "step", form="d")
    yield (f"{steps}, supported" if plan.supported else f"{steps}, not supported: nothing would be applied")
