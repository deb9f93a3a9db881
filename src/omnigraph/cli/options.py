"""Flags that several commands share, declared once."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.urls import is_server_url, looks_like_address

if TYPE_CHECKING:
    from collections.abc import Callable

#: Spelling of `--graph` where that word is a switch of the command, and of a `--graph` before any command.
GRAPH_ID = "--graph-id"


class Kind(StrEnum):
    """What an entity is."""

    NODE = "node"
    EDGE = "edge"


class Operation(StrEnum):
    """What happened to an entity."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class ElasticEngine(StrEnum):
    """Where work is done whose size shows on the way."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


SchemaFile = Annotated[
    Path, typer.Option("--schema", metavar="FILE", help="schema file (.pg)", show_default=False)
]
QueryFile = Annotated[
    Path | None,
    typer.Option("--query", metavar="FILE", help="query file (.gq)", show_default=False),
]
QueryText = Annotated[
    str | None,
    typer.Option("--query-string", "-e", metavar="GQ", help="query text", show_default=False),
]


def refuse_address(text: str | None) -> str | None:
    """Refuse the address of a graph where a name is expected: commands that take names get the graph by a flag.

    Raises:
        typer.BadParameter: it is one.
    """
    if text is not None and looks_like_address(text):
        flag = "--server" if is_server_url(text) else "--store"
        raise typer.BadParameter(
            f"{text} looks like the address of a graph: pass it with {flag} {text}"
        )
    return text


def _query_name(text: str | None) -> str | None:
    refuse_address(text)
    if text is not None and text.endswith(".omni"):
        raise typer.BadParameter(f"{text} looks like a graph: pass it with --store {text}")
    if text is not None and text.endswith(".gq"):
        raise typer.BadParameter(f"{text} looks like a query file: pass it with --query {text}")
    if text is not None and "{" in text:
        raise typer.BadParameter("this looks like the text of a query: pass it with -e")
    return text


QueryName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="query inside the source; without one, stored on a server",
        callback=_query_name,
    ),
]
BranchName = Annotated[str, typer.Argument(metavar="NAME", help="branch", callback=refuse_address)]
CommitId = Annotated[str, typer.Argument(metavar="ID", help="commit id", callback=refuse_address)]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]

Store = Annotated[
    str | None,
    typer.Option("--store", metavar="URI", help="the storage of the graph", show_default=False),
]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="branch")]
ReadBranch = Annotated[
    str | None,
    typer.Option("--branch", metavar="NAME", help="branch; main is the default"),
]
SnapshotId = Annotated[
    str | None, typer.Option("--snapshot", metavar="ID", help="read the graph right after a commit")
]
GraphVersion = Annotated[
    int | None, typer.Option("--graph-version", metavar="N", help="read the branch at a version")
]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="TIME", help="read the branch at a moment")
]
Params = Annotated[
    str | None, typer.Option("--params", metavar="JSON", help="parameters as a JSON object")
]
ParamsFile = Annotated[
    Path | None, typer.Option("--params-file", metavar="FILE", help="the same from a file")
]
OptionalSchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", metavar="FILE", help="schema file (.pg), instead of a graph"),
]


def above_zero(flag: str, unit: str) -> Callable[[float | None], float | None]:
    """The callback of a flag whose number has to mean something: neither zero nor endless, nor not-a-number."""

    def check(number: float | None) -> float | None:
        if number is not None and not 0 < number < math.inf:
            raise typer.BadParameter(f"{flag} takes {unit} above zero")
        return number

    return check


Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        callback=above_zero("--timeout", "seconds"),
        help="stop it after so long; a server has a default of its own",
        show_default=False,
    ),
]
Consent = Annotated[bool, typer.Option("--yes", help="consent to a loss on a remote graph")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no echo and no progress")]
EngineChoice = Annotated[
    ElasticEngine,
    typer.Option("--engine", help="where the work is done; auto: Spark when it is much"),
]
Kinds = Annotated[
    list[Kind] | None,
    typer.Option("--kind", help="only nodes or only edges; may be given again", show_default=False),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="T", help="only this type; may be given again", show_default=False
    ),
]
Operations = Annotated[
    list[Operation] | None,
    typer.Option("--op", help="only this operation; may be given again", show_default=False),
]
PageLimit = Annotated[int, typer.Option("--limit", metavar="N", help="changes per page")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="configuration of a server", show_default=False),
]
ConfiguredGraph = Annotated[
    str | None,
    typer.Option(
        "--graph",
        GRAPH_ID,
        metavar="ID",
        help="graph of the configuration, when it has several",
    ),
]
