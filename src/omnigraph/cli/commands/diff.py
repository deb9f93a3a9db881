"""`omnigraph diff`: what differs between two branches or commits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from omnigraph.cli.change_lines import diff_summary, net_change_line
from omnigraph.cli.options import (
    AsJson,
    ElasticEngine,
    EngineChoice,
    Kinds,
    Operations,
    Quiet,
    Timeout,
    Types,
    refuse_address,
)
from omnigraph.cli.output import StreamedList, print_json, print_lines, print_text
from omnigraph.cli.progress import terminal_progress
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped


def _state(metavar: str) -> Any:
    return typer.Argument(metavar=metavar, help="branch or commit", callback=refuse_address)


@scoped("diff")
def diff(
    one: Annotated[str, _state("FROM")],
    other: Annotated[str, _state("TO")],
    address: Address,
    kind: Kinds = None,
    type: Types = None,
    op: Operations = None,
    engine: EngineChoice = ElasticEngine.AUTO,
    timeout: Timeout = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Show what turns one state of a graph into another: entities that came (+), changed (~) and went (-)."""
    if engine is not ElasticEngine.AUTO:
        address.refuse_on_server("--engine")
    with (
        address.open(read_only=True) as graph,
        graph.diff(
            one,
            other,
            kinds=kind,
            types=type,
            ops=op,
            engine=engine,
            progress=terminal_progress(quiet=quiet),
            timeout_s=timeout,
        ) as found,
    ):
        if json:
            changes = StreamedList(found, lambda change: change.to_json())
            stats = found.stats.to_json()
            print_json({**found.header(), "changes": changes, "stats": stats})
            return
        print_lines(net_change_line(change) for change in found)
        print_text(diff_summary(found, one, other))
