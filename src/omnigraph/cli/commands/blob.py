"""`omnigraph blob`: the bytes of one blob cell, or what it is."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, AsOf, GraphVersion, Kind, ReadBranch, SnapshotId
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.wire.blobs import BlobInfo

app = typer.Typer(no_args_is_help=True, help="Read single blob cells.")

Entity = Annotated[Kind, typer.Argument(metavar="ENTITY", help="node or edge")]
TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="the type; an edge type in any case")]
EntityId = Annotated[str, typer.Argument(metavar="ID", help="the id of the entity")]
Property = Annotated[str, typer.Argument(metavar="PROPERTY", help="a Blob property")]


@app.command("get")
@scoped("blob get")
def get(
    entity: Entity,
    type: TypeName,
    id: EntityId,
    property: Property,
    address: Address,
    branch: ReadBranch = None,
    snapshot: SnapshotId = None,
    graph_version: GraphVersion = None,
    as_of: AsOf = None,
    offset: Annotated[int, typer.Option("--offset", metavar="N", help="first byte")] = 0,
    length: Annotated[
        int | None, typer.Option("--length", metavar="N", help="bytes at most; all by default")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PATH", help="file to write, instead of stdout")
    ] = None,
) -> None:
    """Write the raw bytes of a blob, or a range of them. An external blob is not followed: its address is shown."""
    from omnigraph.wire.blobs import check_range

    _check_target(branch, snapshot)
    check_range(offset, length)
    with address.open(read_only=True) as graph:
        blob = graph.open_blob(
            f"{entity}:{type}",
            id,
            property,
            branch=branch or "main",
            snapshot=snapshot,
            version=graph_version,
            as_of=as_of,
        )
        chunks = blob.chunks(offset, length)
        if out is None:
            _to_stdout(chunks)
        else:
            _to_file(chunks, out)


@app.command("stat")
@scoped("blob stat")
def stat(
    entity: Entity,
    type: TypeName,
    id: EntityId,
    property: Property,
    address: Address,
    branch: ReadBranch = None,
    snapshot: SnapshotId = None,
    graph_version: GraphVersion = None,
    as_of: AsOf = None,
    json: AsJson = False,
) -> None:
    """Show what a blob is: managed with size and tag, or external with its address."""
    _check_target(branch, snapshot)
    with address.open(read_only=True) as graph:
        info = graph.stat_blob(
            f"{entity}:{type}",
            id,
            property,
            branch=branch or "main",
            snapshot=snapshot,
            version=graph_version,
            as_of=as_of,
        )
    if json:
        print_json(info.to_json())
    else:
        print_text(_text(info))


def _check_target(branch: str | None, snapshot: str | None) -> None:
    if branch is not None and snapshot is not None:
        raise typer.BadParameter("give one of --branch and --snapshot")


def _to_stdout(chunks: Iterator[bytes]) -> None:
    if sys.stdout.isatty():
        raise typer.BadParameter(
            "a blob may hold anything, and a terminal would obey it: give --out FILE, or redirect the output"
        )
    try:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the bytes has seen enough. What is still in the buffer has no reader either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None


def _to_file(chunks: Iterator[bytes], out: Path) -> None:
    """The file appears when it is complete; until then, and after a failure, what was there stays."""
    out = out.resolve()
    if out.exists() and not out.is_file():
        raise BadRequestError(f"{out} is no file: give the path of a file")
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


def _text(info: BlobInfo) -> str:
    lines = [f"{info.cell}", f"  kind      {info.kind}"]
    if info.uri is not None:
        lines.append(f"  uri       {info.uri}")
    else:
        lines += [f"  size      {info.size:,} bytes", f"  etag      {info.etag}"]
    return "\n".join([*lines, f"  snapshot  {info.snapshot_id} ({info.target})"])
