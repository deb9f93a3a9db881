"""`omnigraph export`: every entity of one snapshot, as a load reads it."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, AsOf, GraphVersion, ReadBranch, SnapshotId, Timeout, Types
from omnigraph.cli.output import print_json, print_text, print_warning
from omnigraph.cli.progress import terminal_progress
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped

if TYPE_CHECKING:
    from omnigraph.wire.exports import ExportResult


class FileFormat(StrEnum):
    """What the files of an export are made of."""

    JSONL = "jsonl"
    PARQUET = "parquet"


@scoped("export", positional=True)
def export(
    address: Address,
    branch: ReadBranch = None,
    snapshot: SnapshotId = None,
    graph_version: GraphVersion = None,
    as_of: AsOf = None,
    type: Types = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="PATH", help="file or directory to create; written through Spark"
        ),
    ] = None,
    format: Annotated[FileFormat, typer.Option("--format", help="with --out")] = FileFormat.JSONL,
    parts: Annotated[
        bool, typer.Option("--parts", help="with --out, a directory of JSONL files")
    ] = False,
    timeout: Timeout = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", hidden=True)] = False,
    json: AsJson = False,
) -> None:
    """Write every entity of a branch, now or at any point, or of a commit; without --out as sorted JSONL to stdout."""
    if branch is not None and snapshot is not None:
        raise typer.BadParameter("give one of --branch and --snapshot")
    if out is None and (parts or json or format is not FileFormat.JSONL):
        raise typer.BadParameter("--parts, --json and --format parquet need --out")
    if parts and format is FileFormat.PARQUET:
        raise typer.BadParameter("Parquet is always written in parts: leave out --parts")
    if jsonl:
        print_warning("`--jsonl` is deprecated: it is the default format")
    with address.open(read_only=True) as graph:
        try:
            result = graph.export(
                "-" if out is None else out,
                branch=branch or "main",
                snapshot=snapshot,
                version=graph_version,
                as_of=as_of,
                types=type,
                format=format,
                parts=parts,
                progress=terminal_progress(quiet=out is None),
                timeout_s=timeout,
            )
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read the lines has seen enough (`| head`). What is still in the buffer has no reader either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
    if json:
        print_json(result.to_json())
    elif out is not None:
        print_text(_text(result))


def _text(result: ExportResult) -> str:
    counts = [f"edge:{name}: {count:,}" for name, count in result.edges.items()]
    counts += [f"node:{name}: {count:,}" for name, count in result.nodes.items()]
    files = f"{len(result.files)} file{'' if len(result.files) == 1 else 's'}"
    return "\n".join([*counts, f"exported commit {result.commit_id} to {result.target} ({files})"])
