"""`omnigraph infer`, and what `init --from-data` does."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from omnigraph.cli.command_line import Argument, Option
from omnigraph.cli.console import print_result, print_stages, print_text, print_warning, terminal_progress
from omnigraph.cli.flags import QUARANTINED, AsJson, quarantine_of
from omnigraph.cli.scoped import scoped
from omnigraph.cli.tables import counted

if TYPE_CHECKING:
    from omnigraph.inference.proposal import Proposal

Sources = Annotated[
    list[str], Argument(metavar="SOURCE…", help="folders, files or patterns of CSV, Parquet, ORC or JSON")
]
SchemaOut = Annotated[
    Path | None, Option("--schema-out", metavar="FILE", help="write the schema to FILE (.pg)", show_default=False)
]
MappingOut = Annotated[
    Path | None, Option("--mapping-out", metavar="FILE", help="write the mapping to FILE (.yaml)", show_default=False)
]


@scoped("infer")
def infer(
    sources: Sources,
    schema_out: SchemaOut = None,
    mapping_out: MappingOut = None,
    force: Annotated[bool, Option("--force", help="replace files that exist")] = False,
    json: AsJson = False,
) -> None:
    """Propose a schema and a mapping for files: types, keys and edges, with the evidence for every guess."""
    from omnigraph import infer as propose
    from omnigraph.inference.proposal import write_texts

    proposal = propose(sources)
    print_notes(proposal)
    texts = {} if schema_out is None else {schema_out: proposal.schema}
    if mapping_out is not None:
        texts[mapping_out] = proposal.mapping_in(mapping_out.parent)
    write_texts(texts, force=force)
    files = {"schema_out": _text_of(schema_out), "mapping_out": _text_of(mapping_out)}
    print_result(proposal.to_json() | files, _lines(proposal, schema_out, mapping_out), json=json)


def _text_of(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _lines(proposal: Proposal, schema_out: Path | None, mapping_out: Path | None) -> Iterator[str]:
    """The texts that went to no file, and what to do with those that did."""
    if schema_out is None:
        yield from proposal.schema.splitlines()
    if mapping_out is None:
        yield from ([""] if schema_out is None else []) + proposal.mapping.splitlines()
    if schema_out is not None:
        yield f"schema: {schema_out} ({_counts(proposal)})"
    if mapping_out is not None:
        yield f"mapping: {mapping_out}"
    if schema_out is not None and mapping_out is not None:
        yield f"omnigraph init GRAPH --schema {schema_out}"
        yield f"omnigraph load GRAPH --mapping {mapping_out} --mode append"


def _counts(proposal: Proposal) -> str:
    kinds = [guess.kind for guess in proposal.types]
    return f"{counted(kinds.count('node'), 'node type')}, {counted(kinds.count('edge'), 'edge type')}"


def print_notes(proposal: Proposal) -> None:
    """Print what a person should know beside the texts."""
    for item in proposal.left_out:
        print_warning(f"left out: {item.name}: {item.reason}")
    for note in proposal.notes:
        print_warning(f"note: {note}")


# ---- `omnigraph init --from-data`


def init_from_data(
    root: str, sources: Sequence[str], *, on_error: str | None, force: bool, yes: bool, quiet: bool, json: bool
) -> None:
    """Create a graph from data: propose, ask, create, load, and leave schema and mapping beside the graph.

    Raises:
        click.BadParameter: there is no terminal to ask on.
        Exit: the answer was no, or bad records went to a quarantine.
    """
    from omnigraph import Graph
    from omnigraph import infer as propose
    from omnigraph.cli.commands.data import load_lines
    from omnigraph.graph.starting import create_from_files
    from omnigraph.inference.proposal import write_texts

    if not yes and (json or not sys.stdin.isatty()):
        raise click.BadParameter(
            f"--from-data asks before it creates a graph: give --yes, or look first with "
            f"`omnigraph infer {' '.join(sources)}`"
        )
    quarantine = quarantine_of(on_error)
    schema_file, mapping_file = _beside(root)
    proposal = propose(sources)
    texts = {schema_file: proposal.schema, mapping_file: proposal.mapping_in(mapping_file.parent)}
    write_texts(texts, force=force, dry_run=True)
    print_notes(proposal)
    if not yes:
        print_text(f"{proposal.schema}\n{proposal.mapping}")
        _ask(f"Create {root} with {_counts(proposal)} and load it?")
    progress = terminal_progress(quiet=quiet or json)
    graph, receipt = create_from_files(Graph.init, root, proposal, progress=progress, quarantine=quarantine)
    with graph:
        write_texts(texts, force=force)
        print_stages(progress)
        document = {"uri": graph.uri, "schema_out": str(schema_file), "mapping_out": str(mapping_file)}
        lines = [f"initialized {graph.uri}", *load_lines(receipt), f"schema: {schema_file}", f"mapping: {mapping_file}"]
        print_result(document | {"load": receipt.to_json()}, lines, json=json)
    if receipt.quarantine is not None:
        raise Exit(QUARANTINED)


def _beside(root: str) -> tuple[Path, Path]:
    """The files of a proposal: beside a graph on disk, and in the working directory for others."""
    name = root.rstrip("/").rpartition("/")[2].removesuffix(".omni") or "graph"
    folder = Path(root).parent if "://" not in root else Path()
    return folder / f"{name}.pg", folder / f"{name}.yaml"


def _ask(question: str) -> None:
    sys.stderr.write(f"{question} [yes/no] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Exit(1)
