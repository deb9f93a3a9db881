"""Write the reference pages and pictures that follow from the code; `--check` fails when they are out of date."""

from __future__ import annotations

import json
import pkgutil
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import figures
from cli_pages import cli_pages
from functions_page import functions_page
from http_page import http_page
from limits_page import limits_page
from pictures import CHAINS, chain_picture, walk_picture, walks

import omnigraph
from omnigraph import errors
from omnigraph.core.env_settings import DECLARED
from omnigraph.lang.query.compiler import QUERY_CODES
from omnigraph.lang.schema.compiler import SCHEMA_CODES
from omnigraph.lang.schema.steps import RULES
from omnigraph.server.routing import openapi_document

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[1] / "docs"
SOURCES = Path(omnigraph.__file__).parent
#: The chapters of the settings, by the room that reads them; variables that libraries read have one of their own.
CHAPTERS = {
    "cli": "Command line",
    "client": "Clients",
    "commit": "Writes",
    "storage": "Storage",
    "store_variables": "Object stores",
    "engine": "Reads",
    "pipeline": "Loads and comparisons",
    "inference": "Schemas proposed from data",
    "spark": "Spark",
    "maintenance": "Maintenance",
    "embedding": "Embeddings",
    "server": "Server",
    "core": "Process",
}
_STORES = (
    "Read by obstore and Lance for `s3://` addresses, in every process that opens the graph:\n"
    "[set up S3](../operate/storage.md#set-up-s3)."
)
NOTICE = "<!-- Written by tools/reference_pages.py from the code; run `make docs-generated` after a change. -->"


def main() -> None:
    pages = {
        "reference/errors.md": errors_page(),
        "reference/openapi.json": openapi_page(),
        "reference/functions.md": functions_page(NOTICE),
        "reference/limits.md": limits_page(NOTICE),
        "reference/http-api.md": http_page(NOTICE),
        "reference/settings.md": settings_page(),
    }
    pages |= {f"reference/cli/{name}.md": text for name, text in cli_pages(NOTICE)}
    pages |= {f"images/walk-{name}.svg": walk_picture(name, path) for name, path in walks().items()}
    pages |= {f"images/{name}.svg": chain_picture(stages) for name, stages in CHAINS.items()}
    pages["project/performance.md"] = figures.performance_page(NOTICE)
    pages["../README.md"] = figures.readme((DOCS / "../README.md").read_text(encoding="utf-8"))
    stale = [name for name, text in pages.items() if _read(DOCS / name) != text]
    if "--check" in sys.argv:
        if stale:
            sys.exit(f"out of date: {', '.join(stale)}; run `make docs-generated`")
        return
    for name, text in pages.items():
        (DOCS / name).write_text(text, encoding="utf-8")


def openapi_page() -> str:
    """Every route of the server."""
    return json.dumps(openapi_document(is_open=False), indent=2, ensure_ascii=False) + "\n"


def errors_page() -> str:
    """Every error class and every code."""
    lines = [NOTICE, "", "# Errors", ""]
    lines += [
        "Failures of the library are subclasses of `omnigraph.errors.OmniError`. Programs look at `kind` and at the",
        "codes of the diagnostics, never at the message.",
        "",
        "| Class | `kind` | HTTP | Exit | Meaning |",
        "|---|---|---|---|---|",
    ]
    for cls in _subclasses(errors.OmniError):
        meaning = (cls.__doc__ or "").strip().splitlines()[0]
        row = (f"`{cls.__name__}`", f"`{cls.kind}`", cls.http_status, cls.exit_code, meaning)
        lines.append(f"| {' | '.join(map(str, row))} |")
    lines += ["", "## Codes of schema findings", "", "| Code | Meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in SCHEMA_CODES.items()]
    lines += ["", "## Codes of query findings", "", "| Code | Meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in QUERY_CODES.items()]
    lines += ["", "## Codes of schema changes", "", "| Code | Tier | Meaning | Emitted |", "|---|---|---|---|"]
    for rule in RULES:
        emitted = "yes" if rule.emitted else "reserved"
        lines.append(f"| `{rule.code}` | {rule.tier} | {rule.meaning} | {emitted} |")
    return "\n".join(lines) + "\n"


def _subclasses(cls: type[errors.OmniError]) -> Iterator[type[errors.OmniError]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def settings_page() -> str:
    """Every variable that a module declares."""
    for module in pkgutil.walk_packages(omnigraph.__path__, "omnigraph."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    lines = [NOTICE, "", "# Settings", ""]
    lines += [
        "Every variable of the environment that OmniGraph reads, by the part that reads it. A graph reads its settings",
        "when it is opened, a server when it starts. A number or duration that is not valid falls back to its default",
        "with a warning. A duration is a whole number with `s`, `m`, `h`, `d` or `w`; without a unit it is in seconds.",
        "",
        "Other settings are in files: servers, profiles, output formats and aliases of the command line in",
        "[`config.yaml`](../guide/cli-configuration.md#your-configuration), graphs, stored queries and policies of a",
        "server in [its configuration](../operate/server.md#several-graphs).",
    ]
    rooms = {name: _declaring_room(name) for name in sorted(DECLARED)}
    assert set(rooms.values()) <= set(CHAPTERS), "every room that declares variables has a chapter"
    for room, chapter in CHAPTERS.items():
        lines += ["", f"## {chapter}", "", _STORES if room == "store_variables" else f"Read by the room `{room}`.", ""]
        lines += ["| Variable | Default | Values | Meaning |", "|---|---|---|---|"]
        for it in (DECLARED[name] for name in rooms if rooms[name] == room):
            lines.append(f"| `{it}` | {it.shown_default} | {it.values} | {it.purpose} |")
    return "\n".join(lines) + "\n"


def _declaring_room(variable: str) -> str:
    """The room that declares a variable, which is the one that reads it, or the module of those that libraries read."""
    declaration = re.compile(rf'\b(Variable|WholeNumber|Duration)\(\s*"{variable}"')
    modules = (path for path in SOURCES.rglob("*.py") if declaration.search(path.read_text("utf-8")))
    module = next(modules)
    return module.stem if module.stem == "store_variables" else module.relative_to(SOURCES).parts[0]


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    main()
