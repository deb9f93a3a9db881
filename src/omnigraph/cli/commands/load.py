"""`omnigraph load`: files of any size into a graph, as one commit."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, Branch, Consent, Quiet, Timeout
from omnigraph.cli.output import print_json, print_text, print_warning
from omnigraph.cli.progress import print_stages, terminal_progress
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.errors import InputFileError, LoadKeyConflictError, LoadRejectedError
from omnigraph.ids import TableKey

if TYPE_CHECKING:
    from omnigraph.errors import LoadReport
    from omnigraph.wire.receipts import LoadResult


class Mode(StrEnum):
    """What happens to rows that exist."""

    OVERWRITE = "overwrite"
    APPEND = "append"
    MERGE = "merge"


class Engine(StrEnum):
    """Where the work is done."""

    SPARK = "spark"
    LOCAL = "local"


class InputGrammar(StrEnum):
    """How forgiving the reading is."""

    STRICT = "strict"
    COMPATIBLE = "compatible"


Data = Annotated[
    str | None,
    typer.Option("--data", metavar="PATH", help="graph records: file, directory or pattern"),
]
MappingFile = Annotated[
    Path | None,
    typer.Option("--mapping", metavar="FILE", help="which tables feed which types, and how (YAML)"),
]
Base = Annotated[
    str | None,
    typer.Option("--from", metavar="BASE", help="create a missing branch from this one"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="do everything but the commit")]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="write refused records to FILE as JSON"),
]
EngineChoice = Annotated[
    Engine | None, typer.Option("--engine", help="where the work is done: spark is the default")
]
GrammarChoice = Annotated[InputGrammar, typer.Option("--grammar", help="of graph records")]


@scoped("load", positional=True)
def load(
    address: Address,
    data: Data = None,
    mapping: MappingFile = None,
    mode: Annotated[Mode | None, typer.Option("--mode", help="required")] = None,
    branch: Branch = "main",
    base: Base = None,
    engine: EngineChoice = None,
    grammar: GrammarChoice = InputGrammar.STRICT,
    dry_run: DryRun = False,
    report: ReportFile = None,
    timeout: Timeout = None,
    yes: Consent = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Load files into a graph: all records become visible in one commit, or none does."""
    if mode is None:
        raise typer.BadParameter("give --mode append, merge or overwrite")
    flags = _LoadFlags(
        data=data,
        mapping=mapping,
        mode=mode,
        branch=branch,
        base=base,
        engine=engine,
        grammar=grammar,
        dry_run=dry_run,
        report=report,
        timeout=timeout,
    )
    _load(address, flags, yes=yes, quiet=quiet, json=json)


@scoped("ingest", positional=True)
def ingest(
    address: Address,
    data: Data = None,
    mapping: MappingFile = None,
    mode: Annotated[Mode, typer.Option("--mode")] = Mode.MERGE,
    branch: Branch = "main",
    base: Base = "main",
    engine: EngineChoice = None,
    grammar: GrammarChoice = InputGrammar.COMPATIBLE,
    dry_run: DryRun = False,
    report: ReportFile = None,
    yes: Consent = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Load with the defaults of old releases: merge, compatible grammar, missing branches from main."""
    print_warning("`ingest` is deprecated: use `load --mode merge`")
    flags = _LoadFlags(
        data=data,
        mapping=mapping,
        mode=mode,
        branch=branch,
        base=base,
        engine=engine,
        grammar=grammar,
        dry_run=dry_run,
        report=report,
    )
    _load(address, flags, yes=yes, quiet=quiet, json=json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadFlags:
    data: str | None
    mapping: Path | None
    mode: Mode
    branch: str
    base: str | None
    engine: Engine | None
    grammar: InputGrammar
    dry_run: bool
    report: Path | None
    timeout: float | None = None


def _load(address: Address, flags: _LoadFlags, *, yes: bool, quiet: bool, json: bool) -> None:
    if (flags.data is None) == (flags.mapping is None):
        raise typer.BadParameter("give one of --data PATH and --mapping FILE")
    if flags.engine is not None:
        address.refuse_on_server("--engine")
    if flags.mapping is not None:
        address.refuse_on_server("--mapping")
    actor = address.actor
    if flags.mode is Mode.OVERWRITE:
        address.require_consent("replaces data in", yes=yes, json=json)
    address.echo("load into", quiet=quiet)
    progress = terminal_progress(quiet=quiet)
    with address.open(read_only=False) as graph:
        try:
            result = graph.load(
                flags.data,
                mapping=flags.mapping,
                mode=flags.mode,
                branch=flags.branch,
                base=flags.base,
                actor=actor,
                engine=flags.engine or Engine.SPARK,
                grammar=flags.grammar,
                dry_run=flags.dry_run,
                progress=progress,
                timeout_s=flags.timeout,
            )
        except (LoadRejectedError, LoadKeyConflictError) as refused:
            if flags.report is not None:
                _write_report(flags.report, refused.report)
            raise
    print_stages(progress)
    if json:
        print_json(result.to_json())
    else:
        print_text(load_text(result))


def load_text(result: LoadResult) -> str:
    """The receipt as a person reads it."""
    lines = []
    for kind, counts in (("node", result.nodes_loaded), ("edge", result.edges_loaded)):
        for name, count in counts.items():
            gone = result.superseded_rows.get(TableKey(f"{kind}:{name}"), 0)
            read = f" ({count:,} read)" if gone else ""
            lines.append(f"{kind} {name}: {count - gone:,}{read}")
    if result.superseded == 1:
        lines.append("1 record was replaced by a later one of the same id")
    elif result.superseded:
        lines.append(f"{result.superseded:,} records were replaced by later ones of the same id")
    total = sum(result.rows.values()) - result.superseded
    records = f"{total:,} record{'' if total == 1 else 's'}"
    if result.commit is None:
        lines.append(
            f"{records} would be loaded into {result.branch} ({result.mode}); nothing was written"
        )
    else:
        created = f", a new branch from {result.base}" if result.branch_created else ""
        lines.append(
            f"{records} in commit {result.commit.commit_id} on {result.branch}{created} ({result.mode})"
        )
    return "\n".join(lines)


def _write_report(path: Path, report: LoadReport) -> None:
    try:
        text = json_text.dumps(report.to_json(), indent=2, ensure_ascii=False)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputFileError(str(path), error.strerror or str(error)) from error
    print_warning(f"refused records are described in {path}")
