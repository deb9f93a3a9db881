"""`omnigraph embed`: vectors for the records of a file, or with `--graph` for the rows of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, Quiet, Types
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.progress import terminal_progress

if TYPE_CHECKING:
    from omnigraph.pipeline.embedding.files import EmbedFilesResult
    from omnigraph.pipeline.embedding.specs import EmbedFiles, EmbedMode
    from omnigraph.search import EmbeddingClient

Seed = Annotated[
    Path | None,
    typer.Option("--seed", metavar="FILE", help="seed manifest (YAML) that names the files"),
]
Input = Annotated[
    Path | None, typer.Option("--input", metavar="FILE", help="records as JSON lines")
]
Output = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="where they go")]
Spec = Annotated[
    Path | None,
    typer.Option("--spec", metavar="FILE", help="which fields of which types are embedded"),
]
Clean = Annotated[bool, typer.Option("--clean", help="remove vectors")]
ReembedAll = Annotated[bool, typer.Option("--reembed-all", help="replace vectors that exist")]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="[TYPE:]FIELD=VALUE",
        help="only records that match; may be given again",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileFlags:
    seed: Path | None
    input: Path | None
    output: Path | None
    spec: Path | None
    clean: bool
    reembed_all: bool
    select: list[str]
    types: list[str]


def embed(
    seed: Seed = None,
    input: Input = None,
    output: Output = None,
    spec: Spec = None,
    clean: Clean = False,
    reembed_all: ReembedAll = False,
    types: Types = None,
    select: Select = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Give the records of a file their vectors; the output appears when it is complete."""
    flags = _FileFlags(
        seed=seed,
        input=input,
        output=output,
        spec=spec,
        clean=clean,
        reembed_all=reembed_all,
        select=select or [],
        types=types or [],
    )
    _embed_files(flags, quiet=quiet, json=json)


# ---- files


def _embed_files(flags: _FileFlags, *, quiet: bool, json: bool) -> None:
    from omnigraph.pipeline.embedding.files import embed_files

    call = _files_call(flags)
    embedder = _embedder(call.mode)
    try:
        result = embed_files(call, embedder, terminal_progress(quiet=quiet))
    finally:
        if embedder is not None:
            embedder.close()
    if json:
        print_json(result.to_json())
    else:
        print_text(_files_text(result))


def _files_call(flags: _FileFlags) -> EmbedFiles:
    if flags.clean and flags.reembed_all:
        raise typer.BadParameter("give one of --clean and --reembed-all")
    if flags.seed is not None and (flags.input is not None or flags.spec is not None):
        raise typer.BadParameter("give --seed, or --input, --output and --spec")
    from omnigraph.pipeline.embedding.specs import (
        EmbedFiles,
        choose_mode,
        parse_selector,
        read_seed_manifest,
        read_spec,
    )

    selectors = tuple(parse_selector(text) for text in flags.select)
    if flags.seed is not None:
        manifest = read_seed_manifest(flags.seed)
        source, output, spec = manifest.input, flags.output or manifest.output, manifest.spec
    elif flags.input is None or flags.output is None or flags.spec is None:
        raise typer.BadParameter("give --seed, or all of --input, --output and --spec")
    else:
        source, output, spec = flags.input, flags.output, read_spec(flags.spec)
    return EmbedFiles(
        input=source,
        output=output,
        spec=spec,
        mode=choose_mode(clean=flags.clean, reembed_all=flags.reembed_all, selectors=selectors),
        types=frozenset(flags.types),
        selectors=selectors,
    )


def _embedder(mode: EmbedMode) -> EmbeddingClient | None:
    from omnigraph.pipeline.embedding.specs import EmbedMode
    from omnigraph.search import EmbeddingSettings, create_embedder

    if mode is EmbedMode.CLEAN:
        return None
    return create_embedder(EmbeddingSettings.from_environment())


def _files_text(result: EmbedFilesResult) -> str:
    if result.cleaned_records:
        what = f"removed {result.cleaned_records:,} vectors"
    elif result.embedded_records:
        what = f"embedded {result.embedded_records:,} with {result.model}"
    else:
        what = "nothing to do"
    return (
        f"{result.records:,} records, {result.selected_records:,} selected, {what} ({result.mode})\n"
        f"{result.output}"
    )
