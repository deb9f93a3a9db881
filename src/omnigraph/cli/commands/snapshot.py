"""`omnigraph snapshot`: the dataset versions of a branch head."""

from __future__ import annotations

from omnigraph.cli.options import AsJson, Branch
from omnigraph.cli.output import print_json, print_text
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped


@scoped("snapshot", positional=True)
def snapshot(address: Address, branch: Branch = "main", json: AsJson = False) -> None:
    """Show which version of every dataset a branch reads, and how many entities it holds."""
    from omnigraph.wire.commits import snapshot_json

    with address.open(read_only=True) as graph:
        found = graph.snapshot(branch)
    if json:
        print_json(snapshot_json(found))
        return
    pins = [found.pins[key] for key in sorted(found.pins)]
    width = max((len(pin.table_key) for pin in pins), default=0)
    lines = [
        f"branch {found.branch} at commit {found.commit_id}, graph version {found.graph_version}"
    ]
    lines += [f"  {p.table_key:<{width}}  {p.row_count:>12,}  version {p.version}" for p in pins]
    print_text("\n".join(lines))
