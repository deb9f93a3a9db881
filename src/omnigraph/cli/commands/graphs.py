"""`omnigraph graphs`: what a server serves."""

from __future__ import annotations

import typer

from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped

app = typer.Typer(
    help="See which graphs a server serves.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _graphs() -> None:
    pass


@app.command("list")
@scoped("graphs list")
def list_graphs(address: Address, json: AsJson = False) -> None:
    """List the graphs of a server, sorted by id."""
    graphs = address.served_graphs()
    if json:
        print_json({"graphs": graphs})
        return
    width = max((len(graph["graph_id"]) for graph in graphs), default=0)
    lines = [f"{graph['graph_id']:<{width}}  {graph['uri']}" for graph in graphs]
    print_text("\n".join(lines) or "no graphs")
