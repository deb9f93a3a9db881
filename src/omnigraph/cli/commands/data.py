"""`omnigraph load`, `export` and `blob`."""

from __future__ import annotations

import json as json_text
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from click.exceptions import Exit

from omnigraph.cli.command_line import Argument, Option, Words
from omnigraph.cli.console import print_result, print_stages, print_warning, terminal_progress
from omnigraph.cli.flags import (
    QUARANTINED,
    AsJson,
    Branch,
    CommitNote,
    Consent,
    EngineChoice,
    Kind,
    OnError,
    Point,
    Quiet,
    Timeout,
    Types,
    quarantine_of,
)
from omnigraph.cli.input import spooled_records
from omnigraph.cli.rendering import commit_text
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import CommandGroup, scoped
from omnigraph.cli.tables import counted
from omnigraph.core.ids import TableKey
from omnigraph.errors import BadRequestError, InputFileError, LoadKeyConflictError, LoadRejectedError, LoadReport
from omnigraph.frozen import frozen
from omnigraph.pipeline.engine_choice import Engine
from omnigraph.pipeline.shape.leniency import Dangling, Duplicates

if TYPE_CHECKING:
    from omnigraph.api.results import BlobInfo, ExportResult, LoadQuarantine, LoadResult


# ---- `omnigraph load`


class Mode(StrEnum):
    """The rule for rows that exist."""

    OVERWRITE = "overwrite"
    APPEND = "append"
    MERGE = "merge"
    PATCH = "patch"


class InputGrammar(StrEnum):
    """The strictness of the reader."""

    STRICT = "strict"
    COMPATIBLE = "compatible"


Data = Annotated[
    str | None,
    Option("--data", metavar="PATH", help="graph records: file, directory or pattern; - reads standard input"),
]
MappingFile = Annotated[
    str | None, Option("--mapping", metavar="FILE", help="which tables feed which types, and how (YAML)")
]
Base = Annotated[
    str | None, Option("--from", metavar="BASE", help="create a missing branch from this one", words=Words.BRANCH)
]
DryRun = Annotated[bool, Option("--dry-run", help="do everything but the commit")]
ReportFile = Annotated[
    Path | None, Option("--report", metavar="FILE", help="write why records were not loaded to FILE, as JSON")
]
GrammarChoice = Annotated[InputGrammar, Option("--grammar", help="of graph records")]
OnDuplicate = Annotated[
    Duplicates | None,
    Option("--on-duplicate", help="of records with equal ids; by default merge takes the last, others refuse"),
]
OnDangling = Annotated[
    Dangling | None, Option("--dangling", help="of edges whose ends do not exist; refused by default")
]


Upsert = Annotated[bool, Option("--upsert", help="with --mode patch: unknown records become new rows")]

CheckMinimum = Annotated[bool, Option("--check-minimum", help="every node needs the edges that `@card(1..)` asks for")]


@scoped("load")
def load(
    address: Address,
    *,
    data: Data = None,
    mapping: MappingFile = None,
    mode: Annotated[Mode | None, Option("--mode", help="required")] = None,
    branch: Branch = "main",
    base: Base = None,
    engine: EngineChoice = Engine.AUTO,
    grammar: GrammarChoice = InputGrammar.STRICT,
    upsert: Upsert = False,
    check_minimum: CheckMinimum = False,
    on_duplicate: OnDuplicate = None,
    dangling: OnDangling = None,
    on_error: OnError = None,
    dry_run: DryRun = False,
    report: ReportFile = None,
    note: CommitNote,
    timeout: Timeout = None,
    yes: Consent = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Load files into a graph: all records become visible in one commit, or none does."""
    if mode is None:
        raise click.BadParameter("give --mode append, merge, overwrite or patch")
    if upsert and mode is not Mode.PATCH:
        raise click.BadParameter("--upsert needs --mode patch")
    quarantine = quarantine_of(on_error)
    if quarantine is not None:
        address.refuse_on_server(
            "--on-error quarantine=…",
            "reports of a server name 100 records of each rule, and a quarantine has to hold all of them before the "
            "commit; --report FILE writes those",
        )
    choices = {
        "engine": engine,
        "grammar": grammar,
        "upsert": upsert,
        "check_minimum": check_minimum,
        "on_duplicate": on_duplicate,
        "dangling": dangling,
        "quarantine": quarantine,
        "timeout_s": timeout,
        **note.arguments(),
    }
    _load(address, data, mapping, mode, branch, base, dry_run, report, yes, quiet, json, choices)


@scoped("ingest")
def ingest(
    address: Address,
    data: Data = None,
    mapping: MappingFile = None,
    mode: Annotated[Mode, Option("--mode")] = Mode.MERGE,
    branch: Branch = "main",
    base: Base = "main",
    engine: EngineChoice = Engine.AUTO,
    grammar: GrammarChoice = InputGrammar.COMPATIBLE,
    dry_run: DryRun = False,
    report: ReportFile = None,
    yes: Consent = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Deprecated: `load` with other defaults: merge, compatible grammar, missing branches from main."""
    print_warning("`ingest` is deprecated: use `load --mode merge`")
    choices = {"engine": engine, "grammar": grammar}
    _load(address, data, mapping, mode, branch, base, dry_run, report, yes, quiet, json, choices)


def _load(
    address: Address,
    data: str | None,
    mapping: str | None,
    mode: Mode,
    branch: str,
    base: str | None,
    dry_run: bool,
    report: Path | None,
    yes: bool,
    quiet: bool,
    json: bool,
    choices: Mapping[str, Any],
) -> None:
    if (data is None) == (mapping is None):
        raise click.BadParameter("give one of --data PATH and --mapping FILE")
    if choices["engine"] is not Engine.AUTO:
        address.refuse_on_server("--engine")
    if mapping is not None:
        address.refuse_on_server("--mapping")
    actor = address.actor
    if mode is Mode.OVERWRITE:
        address.require_consent("replaces data in", yes=yes, json=json)
    address.echo("load into", quiet=quiet)
    progress = terminal_progress(quiet=quiet)
    try:
        with address.open(read_only=False) as graph, spooled_records(data) as records:
            result = graph.load(
                records,
                mapping=mapping,
                mode=mode,
                branch=branch,
                base=base,
                actor=actor,
                dry_run=dry_run,
                progress=progress,
                **choices,
            )
    except (LoadRejectedError, LoadKeyConflictError) as refused:
        if report is not None:
            _write_report(report, refused.report)
        raise
    print_stages(progress)
    if report is not None and result.report is not None:
        _write_report(report, result.report)
    print_result(result, load_lines(result), json=json)
    if result.quarantine is not None:
        raise Exit(QUARANTINED)


def load_lines(result: LoadResult) -> Iterator[str]:
    """The receipt as a person reads it."""
    patched = {
        (kind, item.name): f"{item.patched:,} patched, {item.inserted:,} inserted"
        for kind, types in (("node", result.nodes), ("edge", result.edges))
        for item in types
        if result.mode == Mode.PATCH
    }
    for kind, counts in (("node", result.nodes_loaded), ("edge", result.edges_loaded)):
        for name, count in counts.items():
            gone = result.superseded_rows.get(TableKey(f"{kind}:{name}"), 0)
            read = f" ({count:,} read)" if gone else ""
            yield f"{kind} {name}: {patched.get((kind, name)) or f'{count - gone:,}{read}'}"
    if result.superseded:
        were = "was" if result.superseded == 1 else "were"
        yield f"{counted(result.superseded, 'record')} {were} replaced by another one of the same id"
    for key, count in result.dropped_rows.items():
        yield f"{key.name}: {counted(count, 'edge')} dropped, because an end does not exist"
    if result.quarantine is not None:
        yield from _quarantine_lines(result.quarantine)
    for edges in result.edges:
        if edges.repeated:
            joined = "edge joins" if edges.repeated == 1 else "edges join"
            yield (
                f"edge {edges.name}: {edges.repeated:,} new {joined} nodes that were joined before; an edge without an "
                "id is always new: give it one, as `id` of the record or in the mapping, to load a file again; types "
                "of edges that are declared with `@key(src, dst)` need none"
            )
    for name, count in result.nulled.items():
        values = "1 value that does not fit was" if count == 1 else f"{count:,} values that do not fit were"
        yield f"{name}: {values} stored as null; `--grammar strict --dry-run` shows them"
    if result.embedded:
        yield f"{counted(result.embedded, 'text')} {'would be embedded' if result.commit is None else 'embedded'}"
    total = sum(result.rows.values()) - result.superseded
    records = counted(total, "record")
    if result.commit is None:
        yield f"{records} would be loaded into {result.branch} ({result.mode}); nothing was written"
    else:
        created = f", a new branch from {result.base}" if result.branch_created else ""
        yield f"{records} in commit {commit_text(result.commit.commit_id)} on {result.branch}{created} ({result.mode})"
    if result.engine is not None:
        yield str(result.engine)


def _quarantine_lines(kept: LoadQuarantine) -> Iterator[str]:
    place = "would be kept" if kept.folder is None else f"in {kept.folder}"
    yield f"{counted(kept.records, 'bad record')} {place}"
    for rule, count in kept.rules.items():
        yield f"  {rule}: {count:,}"
    if kept.command is not None:
        yield f"correct them, then: {kept.command}"


def _write_report(path: Path, report: LoadReport) -> None:
    try:
        text = json_text.dumps(report.to_json(), indent=2, ensure_ascii=False)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputFileError(str(path), error.strerror or str(error)) from error
    print_warning(f"records that were not loaded are described in {path}")


# ---- `omnigraph export`


class FileFormat(StrEnum):
    """The file format of an export."""

    JSONL = "jsonl"
    PARQUET = "parquet"


@scoped("export")
def export(
    address: Address,
    point: Point,
    type: Types = None,
    out: Annotated[str | None, Option("--out", metavar="PATH", help="file or directory to create, or s3://")] = None,
    format: Annotated[FileFormat, Option("--format", help="with --out")] = FileFormat.JSONL,
    parts: Annotated[bool, Option("--parts", help="with --out, a directory of JSONL files")] = False,
    engine: EngineChoice = Engine.AUTO,
    timeout: Timeout = None,
    jsonl: Annotated[bool, Option("--jsonl", hidden=True)] = False,
    json: AsJson = False,
) -> None:
    """Write every entity of a branch, now or at any point, or of a commit; without --out as sorted JSONL to stdout."""
    state = point.arguments()
    if out is None and (parts or json or format is not FileFormat.JSONL):
        raise click.BadParameter("--parts, --json and --format parquet need --out")
    if parts and format is FileFormat.PARQUET:
        raise click.BadParameter("Parquet is always written in parts: leave out --parts")
    if engine is not Engine.AUTO:
        address.refuse_on_server("--engine")
    if jsonl:
        print_warning("`--jsonl` is deprecated: it is the default format")
    with address.open(read_only=True) as graph:
        result = graph.export(
            "-" if out is None else out,
            types=type,
            format=format,
            parts=parts,
            engine=engine,
            progress=terminal_progress(quiet=out is None),
            timeout_s=timeout,
            **state,
        )
    if out is not None:
        print_result(result, _export_lines(result), json=json)


def _export_lines(result: ExportResult) -> list[str]:
    counts = [f"edge:{name}: {count:,}" for name, count in result.edges.items()]
    counts += [f"node:{name}: {count:,}" for name, count in result.nodes.items()]
    files = counted(len(result.files), "file", form="d")
    lines = [*counts, f"exported commit {commit_text(result.commit_id)} to {result.target} ({files})"]
    return lines if result.engine is None else [*lines, str(result.engine)]


# ---- `omnigraph blob`


app = CommandGroup(help="Read single blob cells.")


@frozen
class Cell:
    """The cell of a blob."""

    entity: Annotated[Kind, Argument(metavar="ENTITY", help="node or edge")]
    type: Annotated[str, Argument(metavar="TYPE", help="the type; an edge type in any case")]
    id: Annotated[str, Argument(metavar="ID", help="the id of the entity")]
    property: Annotated[str, Argument(metavar="PROPERTY", help="a Blob property")]

    def arguments(self) -> tuple[str, str, str]:
        """The cell as methods take it."""
        return f"{self.entity}:{self.type}", self.id, self.property


@app.register("get")
@scoped("blob get")
def get(
    cell: Cell,
    address: Address,
    point: Point,
    offset: Annotated[int, Option("--offset", metavar="N", help="first byte")] = 0,
    length: Annotated[int | None, Option("--length", metavar="N", help="bytes at most; all by default")] = None,
    out: Annotated[Path | None, Option("--out", metavar="PATH", help="file to write, instead of stdout")] = None,
) -> None:
    """Write the raw bytes of a blob, or a range of them. An external blob is not followed: its address is shown."""
    from omnigraph.api.results import check_range

    state = point.arguments()
    check_range(offset, length)
    with address.open(read_only=True) as graph:
        blob = graph.open_blob(*cell.arguments(), **state)
        chunks = blob.chunks(offset, length)
        if out is None:
            _to_stdout(chunks)
        else:
            _to_file(chunks, out)


@app.register("stat")
@scoped("blob stat")
def stat(cell: Cell, address: Address, point: Point, json: AsJson = False) -> None:
    """Show what a blob is: managed with size and tag, or external with its address."""
    state = point.arguments()
    with address.open(read_only=True) as graph:
        info = graph.stat_blob(*cell.arguments(), **state)
    print_result(info, _blob_lines(info), json=json)


def _to_stdout(chunks: Iterator[bytes]) -> None:
    if sys.stdout.isatty():
        raise click.BadParameter(
            "a blob may hold anything, and a terminal would obey it: give --out FILE, or redirect the output"
        )
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)


def _to_file(chunks: Iterator[bytes], out: Path) -> None:
    """The file appears when it is complete; until then, and after a failure, what was there stays."""
    out = out.resolve()
    if out.exists() and not out.is_file():
        raise BadRequestError(f"{out} is not a file: give the path of a file")
    unfinished = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with unfinished.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
        unfinished.replace(out)
    except OSError as error:
        raise BadRequestError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


def _blob_lines(info: BlobInfo) -> Iterator[str]:
    yield str(info.cell)
    yield f"  kind      {info.kind}"
    if info.uri is not None:
        yield f"  uri       {info.uri}"
    else:
        yield f"  size      {info.size:,} bytes"
        yield f"  etag      {info.etag}"
    yield f"  snapshot  {info.snapshot_id} ({info.target})"
