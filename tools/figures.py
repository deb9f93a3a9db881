"""Tables of measured figures from the result files of the benchmarks: five for the README, all of them for the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks/results"
#: The peers of reads from left to right, and how the tables call them.
PEERS = {"lance": "bare Lance", "ladybug": "Ladybug", "duckdb": "DuckDB", "lancedb": "LanceDB"}
OURS = "omnigraph"


def readme(text: str) -> str:
    """The README with its five figures as the result files have them."""
    rows = [
        *(_one_read(*item) for item in (("point", "lance"), ("reach-3", "ladybug"), ("rrf", "lancedb"))),
        *(_one_change(item) for item in ("merge, both sides changed", "commit one node")),
    ]
    table = "\n".join(_table(("Operation", "OmniGraph / peer", "Reproduce it"), rows))
    return re.sub(r"(?s)(<!-- figures.*?-->\n).*(<!-- end of figures)", rf"\1{table}\n\2", text)


def performance_page(notice: str) -> str:
    """Every figure of the result files, ratios before times, losses like gains."""
    reads, changes = _result("queries"), _result("history")
    nodes, edges = (reads["dataset"][kind] for kind in ("nodes", "edges"))
    persons, acquaintances = nodes["Person"], edges["Knows"]
    lines = [notice, "", "# Performance", ""]
    lines += [
        "Every figure on this page comes from a result file in `benchmarks/results/`. Ratios come first, because",
        "times depend on the machine. Below 1 OmniGraph is faster; above 1 the other system is. Within one run the",
        "systems take turns.",
        "",
        "## Reads",
        "",
        f"Medians with warm caches on a social graph of {persons:,} persons and {acquaintances:,} acquaintances. The",
        "benchmark compares the rows of all systems; for approximate search it reports the overlap.",
        "",
    ]
    figures = reads["figures"]
    lines += _table(("Shape", *(f"/ {name}" for name in PEERS.values())), map(_ratios, figures))
    lines += ["", "The same figures as times in milliseconds:", ""]
    lines += _table(("Shape", "OmniGraph", *PEERS.values()), map(_times, figures))
    lines += [*_origin(reads, f"queries.py --persons {persons}", "queries.json"), "", "## Branches and commits", ""]
    lines += [
        "The peer is doltlite, an embedded SQL database with branches. It shows what a small commit to a versioned",
        "database can cost. Both systems flush what they commit.",
        "",
    ]
    lines += _table(("Operation", "OmniGraph / doltlite", "OmniGraph", "doltlite"), map(_change, changes["figures"]))
    lines += _origin(changes, "history.py --edges 200000", "history.json")
    lines += ["", "## What is not measured", ""]
    lines += [
        "- Reads of a graph that does not fit into memory, and cold reads from an object store.",
        "- Clusters: Spark figures come from one machine of two cores.",
        "- Other systems at their best: each peer runs with its default settings.",
        "- Graphs of more than 20 million edges, except for [the cost of a load in the driver](../concepts/scale.md).",
        "",
        "`benchmarks/README.md` in the repository describes every benchmark, its baseline and its targets.",
    ]
    return "\n".join(lines) + "\n"


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    names = tuple(header)
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _ratios(figure: dict[str, Any]) -> Iterator[str]:
    times = figure["p50_ms"]
    yield figure["title"]
    yield from (f"{times[OURS] / times[peer]:.2f}" if peer in times else "–" for peer in PEERS)


def _times(figure: dict[str, Any]) -> Iterator[str]:
    times = figure["p50_ms"]
    yield figure["title"]
    yield from (f"{times[name]:.2f}" if name in times else "–" for name in (OURS, *PEERS))


def _change(figure: dict[str, Any]) -> tuple[str, ...]:
    ours, theirs = (median(figure["seconds"][name]) for name in (OURS, "doltlite"))
    title = f"{figure['operation']}, {figure['condition']}"
    return title, f"{ours / theirs:.2f}", f"{1000 * ours:.1f} ms", f"{1000 * theirs:.1f} ms"


def _origin(result: dict[str, Any], command: str, name: str) -> list[str]:
    machine = result["machine"]
    return [
        "",
        f"Measured on {machine['cores']} cores, {machine['memory_gib']:.0f} GiB, Python {machine['python']}. Repeat:",
        "",
        "```",
        f".venv/bin/python benchmarks/{command} --json benchmarks/results/{name}",
        "```",
    ]


def _one_read(workload: str, peer: str) -> tuple[str, ...]:
    found = _result("queries")
    (figure,) = (item for item in found["figures"] if item["workload"] == workload)
    ratio = figure["p50_ms"][OURS] / figure["p50_ms"][peer]
    command = f"`benchmarks/queries.py --persons {found['dataset']['nodes']['Person']}`"
    return f"{figure['title']}", f"{ratio:.2f} × {PEERS[peer]}", command


def _one_change(operation: str) -> tuple[str, ...]:
    fitting = (item for item in _result("history")["figures"] if item["operation"] == operation)
    figure = next(item for item in fitting if " edges" in item["condition"])
    edges = figure["condition"].rpartition("in ")[2].partition(" ")[0].replace(",", "")
    title, ratio, *_ = _change(figure)
    return title, f"{ratio} × doltlite", f"`benchmarks/history.py --edges {edges}`"
