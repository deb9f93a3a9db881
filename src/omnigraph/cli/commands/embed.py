"""`omnigraph embed`: vectors for the records of a file, or with `--graph` for the rows of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from omnigraph.cli.command_line import Option
from omnigraph.cli.console import print_result, terminal_progress
from omnigraph.cli.flags import AsJson, CommitNote, Quiet, Timeout, Types, above_zero
from omnigraph.cli.rendering import commit_text
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.pipeline.engine_choice import Engine

if TYPE_CHECKING:
    from omnigraph.embedding.file_job import EmbedFiles, EmbedFilesResult
    from omnigraph.embedding.row_job import EmbeddedProperty, EmbedResult

Seed = Annotated[Path | None, Option("--seed", metavar="FILE", help="seed manifest (YAML) that names the files")]
Input = Annotated[Path | None, Option("--input", metavar="FILE", help="records as JSON lines")]
Output = Annotated[Path | None, Option("--output", metavar="FILE", help="where they go")]
Spec = Annotated[Path | None, Option("--spec", metavar="FILE", help="which fields of which types are embedded")]
Clean = Annotated[bool, Option("--clean", help="remove vectors")]
ReembedAll = Annotated[bool, Option("--reembed-all", help="replace vectors that exist")]
Select = Annotated[
    list[str] | None,
    Option(
        "--select", metavar="[TYPE:]FIELD=VALUE", help="only records that match; may be given again", show_default=False
    ),
]


OnGraph = Annotated[bool, Option("--graph", help="embed the rows of a graph instead of a file")]
GraphBranch = Annotated[str | None, Option("--branch", metavar="NAME", help="branch of the graph; main is the default")]
Rate = Annotated[
    float | None,
    Option(
        "--rate",
        metavar="N",
        callback=above_zero("--rate", "texts per second"),
        help="texts per second at most",
        show_default=False,
    ),
]
DryRun = Annotated[bool, Option("--dry-run", help="count what would be embedded")]


@scoped("embed")
def embed(
    address: Address,
    *,
    graph: OnGraph = False,
    branch: GraphBranch = None,
    engine: Annotated[
        Engine | None, Option("--engine", help="where a graph is embedded; auto: Spark when it is much")
    ] = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    timeout: Timeout = None,
    seed: Seed = None,
    input: Input = None,
    output: Output = None,
    spec: Spec = None,
    clean: Clean = False,
    select: Select = None,
    types: Types = None,
    reembed_all: ReembedAll = False,
    note: CommitNote,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Give records of a file, or with --graph rows of a graph, the vectors of their texts.

    A file appears when it is complete. In a graph, rows without a vector and rows whose text changed since get one, all
    of them in one commit.
    """
    of_files = {
        "--seed": seed,
        "--input": input,
        "--output": output,
        "--spec": spec,
        "--clean": clean,
        "--select": select,
    }
    of_graphs = {
        "--branch": branch,
        "--engine": engine,
        "--rate": rate,
        "--dry-run": dry_run,
        "--timeout": timeout,
        "--message": note.message,
        "--metadata": note.metadata,
    }
    # A flag that the other half of the command has is an error, never ignored.
    if foreign := next((flag for flag, value in (of_files if graph else of_graphs).items() if value), None):
        other = "--graph" if graph else "files: give --graph to embed a graph"
        raise click.BadParameter(f"{foreign} does not go with {other}")
    if not graph:
        if address.is_explicit or address.has_actor:
            raise click.BadParameter("a graph and --as do not go with files: give --graph to embed a graph")
        made = _embed_files(
            _files_call(seed, input, output, spec, clean, reembed_all, types or [], select or []), quiet=quiet
        )
        print_result(made, _files_lines(made), json=json)
        return
    if not dry_run:
        address.echo("embed", quiet=quiet)
    with address.open_storage(read_only=False) as opened:
        result = opened.embed(
            types=types or None,
            branch=branch or "main",
            reembed=reembed_all,
            rate=rate,
            engine=engine or Engine.AUTO,
            actor=address.actor,
            **note.arguments(),
            dry_run=dry_run,
            progress=terminal_progress(quiet=quiet),
            timeout_s=timeout,
        )
    print_result(result, _graph_lines(result), json=json)


def _graph_lines(result: EmbedResult) -> Iterator[str]:
    yield from map(_property_text, result.properties)
    if not result.properties:
        yield "the schema has no vector with @embed"
    elif not result.rows:
        yield "every vector is up to date"
    elif result.commit is None:
        yield f"{result.rows:,} rows would change on {result.branch}; nothing was written"
    else:
        reused = f", {result.reused:,} computed before" if result.reused else ""
        commit = f"commit {commit_text(result.commit.commit_id)} on {result.branch}"
        yield f"{result.embedded:,} texts embedded with {result.model}{reused}; {commit}"


def _property_text(item: EmbeddedProperty) -> str:
    counts = {
        "missing": item.missing,
        "outdated": item.outdated,
        "without text any more": item.cleared,
        "without text, but not nullable": item.kept,
    }
    parts = [f"{count:,} {what}" for what, count in counts.items() if count]
    line = f"{item.type_key}.{item.property}: {', '.join(parts) or 'up to date'}"
    if item.checked_since is not None:
        line += f" (texts that changed before commit {item.checked_since} are not recognised)"
    return line


# ---- files


def _embed_files(call: EmbedFiles, *, quiet: bool) -> EmbedFilesResult:
    from omnigraph.embedding.client import EmbeddingSettings, create_embedder
    from omnigraph.embedding.file_job import EmbedMode, embed_files

    embedder = None if call.mode is EmbedMode.CLEAN else create_embedder(EmbeddingSettings.from_environment())
    try:
        return embed_files(call, embedder, terminal_progress(quiet=quiet))
    finally:
        if embedder is not None:
            embedder.close()


def _files_call(
    seed: Path | None,
    input: Path | None,
    output: Path | None,
    spec: Path | None,
    clean: bool,
    reembed_all: bool,
    types: list[str],
    select: list[str],
) -> EmbedFiles:
    if clean and reembed_all:
        raise click.BadParameter("give one of --clean and --reembed-all")
    if seed is not None and (input is not None or spec is not None):
        raise click.BadParameter("give --seed, or --input, --output and --spec")
    from omnigraph.embedding.file_job import EmbedFiles, choose_mode, parse_selector, read_seed_manifest, read_spec

    selectors = tuple(parse_selector(text) for text in select)
    if seed is not None:
        manifest = read_seed_manifest(seed)
        source, target, fields = manifest.input, output or manifest.output, manifest.spec
    elif input is None or output is None or spec is None:
        raise click.BadParameter("give --seed, or all of --input, --output and --spec")
    else:
        source, target, fields = input, output, read_spec(spec)
    return EmbedFiles(
        input=source,
        output=target,
        spec=fields,
        mode=choose_mode(clean=clean, reembed_all=reembed_all, selectors=selectors),
        types=frozenset(types),
        selectors=selectors,
    )


def _files_lines(result: EmbedFilesResult) -> Iterator[str]:
    if result.cleaned_records:
        what = f"removed {result.cleaned_records:,} vectors"
    elif result.embedded_records:
        what = f"embedded {result.embedded_records:,} with {result.model}"
    else:
        what = "nothing to do"
    yield f"{result.records:,} records, {result.selected_records:,} selected, {what} ({result.mode})"
    yield str(result.output)
