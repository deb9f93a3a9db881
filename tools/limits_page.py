"""Every fixed bound in one table, with the number that the code has; settings have a page of their own."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

#: Chapter → what is bounded, the constant that says how much, its unit, and what happens beyond it.
BOUNDS = {
    "Schemas and queries": [
        ("a text", "core.source.MAX_SOURCE_BYTES", "bytes", "refused"),
        ("words and signs of a text", "core.source.MAX_TOKENS", "", "refused"),
        ("levels of brackets", "core.source.MAX_NESTING", "", "refused"),
        ("bindings, traversals and `not` blocks of a query", "core.source.MAX_PATTERNS", "", "`Q118`"),
        ("clauses, columns, order keys, parameters or statements", "core.source.MAX_PARTS", "", "`Q118`"),
        ("findings that an error lists", "errors.requests.MAX_DIAGNOSTICS", "", "counted, not listed"),
        ("distinct words of a text search", "engine.tables.text_analysis.MAX_QUERY_TERMS", "", "refused"),
    ],
    "Loads": [
        ("a line of JSON or CSV", "pipeline.sources.records.MAX_LINE_BYTES", "bytes", "a bad record"),
        (
            "brackets, commas and colons of a JSON record",
            "pipeline.sources.records.MAX_STRUCTURAL_TOKENS",
            "",
            "a bad record",
        ),
        ("examples of a rule in a report", "errors.writes.MAX_EXAMPLES", "", "counted, not listed"),
        ("parts of one input", "pipeline.keys.MAX_PARTS", "", "larger parts are made"),
    ],
    "Branches and history": [
        ("conflicts that a refused merge lists", "errors.writes.MAX_CONFLICTS", "", "counted, not listed"),
        ("changes of a page", "branches.changes.MAX_PAGE_CHANGES", "", "the next page goes on"),
        ("bytes of a page of changes", "branches.changes.MAX_PAGE_BYTES", "bytes", "the next page goes on"),
        ("commits of one poll of the feed", "branches.feed.MAX_POLL_COMMITS", "", "the next poll goes on"),
    ],
}


def limits_page(notice: str) -> str:
    """The tables of all chapters."""
    lines = [notice, "", "# Limits", ""]
    lines += [
        "These bounds are fixed. Bounds of memory, time, connections and bodies are [settings](settings.md).",
        "Rows, types, branches and commits have no bound of their own.",
    ]
    for chapter, bounds in BOUNDS.items():
        lines += ["", f"## {chapter}", "", "| What | At most | Beyond |", "|---|---|---|", *_rows(bounds)]
    return "\n".join(lines) + "\n"


def _rows(bounds: list[tuple[str, str, str, str]]) -> Iterator[str]:
    for what, constant, unit, beyond in bounds:
        module, _, name = constant.rpartition(".")
        value = int(getattr(import_module(f"omnigraph.{module}"), name))
        shown = f"{value // 2**20} MiB" if unit == "bytes" else f"{value:,}"
        yield f"| {what} | {shown} | {beyond} |"
