"""`omnigraph recovery`: what was settled after crashes."""

from __future__ import annotations

import typer

from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped

app = typer.Typer(
    help="See what was settled after crashes.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _recovery() -> None:
    pass


@app.command("list")
@scoped("recovery list", positional=True)
def list_recoveries(address: Address, json: AsJson = False) -> None:
    """List every recovery action, newest first, and the intents that are not settled."""
    with address.open_storage(read_only=True) as graph:
        records = graph.recoveries()
        pending = graph.pending_recoveries()
    if json:
        print_json({"recoveries": [record.to_json() for record in records], "pending": pending})
        return
    lines = [
        f"{r.recovery_id}  {r.recovery_kind:<13} {r.writer_kind:<14} operation {r.operation_id}"
        for r in records
    ]
    lines += [f"unsettled: {name}; the next write or open settles it" for name in pending]
    print_text("\n".join(lines) or "no recoveries")
