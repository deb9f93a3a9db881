"""Flags and arguments that several commands share, alone and in groups."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypedDict

import click

from omnigraph.cli.command_line import Argument, Option, Words
from omnigraph.client.addresses import looks_like_address
from omnigraph.frozen import frozen
from omnigraph.pipeline.engine_choice import Engine

# ---- Flags that several commands share, declared once


#: Spelling of `--graph` where that word is a switch of the command, and of a `--graph` before any command.
GRAPH_ID = "--graph-id"


class Kind(StrEnum):
    """The kind of an entity."""

    NODE = "node"
    EDGE = "edge"


class Operation(StrEnum):
    """The operation on an entity."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


OnError = Annotated[
    str | None,
    Option(
        "--on-error",
        metavar="refuse|quarantine=FOLDER",
        help="of bad records: refuse the load (default), or load the others and keep the bad ones in FOLDER; exits 3",
    ),
]
_QUARANTINE = "quarantine="
#: The exit code of a command that put records into a quarantine.
QUARANTINED = 3


def quarantine_of(on_error: str | None) -> str | None:
    """The folder for bad records; None where they refuse the load.

    Raises:
        click.BadParameter: the flag says something else.
    """
    if on_error is None or on_error == "refuse":
        return None
    folder = on_error.removeprefix(_QUARANTINE)
    if not folder or folder == on_error:
        raise click.BadParameter("give --on-error refuse or --on-error quarantine=FOLDER")
    return folder


SchemaFile = Annotated[Path, Option("--schema", metavar="FILE", help="schema file (.pg)", show_default=False)]


def refuse_address(text: str | None) -> str | None:
    """Refuse the address of a graph where a name is expected.

    Raises:
        click.BadParameter: it is one.
    """
    if text is not None and looks_like_address(text):
        raise click.BadParameter(f"{text} looks like the address of a graph: give it as the first argument, once")
    return text


def _query_name(text: str | None) -> str | None:
    refuse_address(text)
    if text is not None and "{" in text:
        raise click.BadParameter("this looks like the text of a query: pass it with -e")
    return text


QueryName = Annotated[
    str | None,
    Argument(
        metavar="NAME",
        help="query inside the source; without one, stored on a server",
        callback=_query_name,
        words=Words.QUERY,
    ),
]
CommitId = Annotated[str, Argument(metavar="COMMIT", help="commit: its id, or main~1", callback=refuse_address)]
AsJson = Annotated[bool, Option("--json", help="print one JSON document")]

Branch = Annotated[str, Option("--branch", metavar="NAME", help="branch", words=Words.BRANCH)]
ReadBranch = Annotated[
    str | None, Option("--branch", metavar="NAME", help="branch; main is the default", words=Words.BRANCH)
]
SnapshotId = Annotated[
    str | None, Option("--snapshot", metavar="COMMIT", help="read the graph right after a commit: its id, or main~1")
]
GraphVersion = Annotated[int | None, Option("--graph-version", metavar="N", help="read the branch at a version")]
AsOf = Annotated[str | None, Option("--as-of", metavar="TIME", help="read the branch at a moment")]
OptionalSchemaFile = Annotated[
    Path | None, Option("--schema", metavar="FILE", help="schema file (.pg), instead of a graph")
]


def above_zero(flag: str, unit: str) -> Callable[[float | None], float | None]:
    """The callback of a flag whose number has to mean something: neither zero nor endless, nor not-a-number."""

    def check(number: float | None) -> float | None:
        if number is not None and not 0 < number < math.inf:
            raise click.BadParameter(f"{flag} takes {unit} above zero")
        return number

    return check


Timeout = Annotated[
    float | None,
    Option(
        "--timeout",
        metavar="SECONDS",
        callback=above_zero("--timeout", "seconds"),
        help="stop it after so long; a server has a default of its own",
        show_default=False,
    ),
]
Consent = Annotated[bool, Option("--yes", help="consent to a loss on a remote graph")]
Quiet = Annotated[bool, Option("--quiet", help="no echo and no progress")]
NoPager = Annotated[bool, Option("--no-pager", help="never open the pager of the terminal")]
EngineChoice = Annotated[Engine, Option("--engine", help="where the work is done; auto: Spark when it is much")]
Kinds = Annotated[
    list[Kind] | None, Option("--kind", help="only nodes or only edges; may be given again", show_default=False)
]
Types = Annotated[
    list[str] | None, Option("--type", metavar="T", help="only this type; may be given again", show_default=False)
]
Operations = Annotated[
    list[Operation] | None, Option("--op", help="only this operation; may be given again", show_default=False)
]
PageLimit = Annotated[int, Option("--limit", metavar="N", help="changes per page")]
ConfigFile = Annotated[
    Path | None, Option("--config", metavar="FILE", help="configuration of a server", show_default=False)
]
ConfiguredGraph = Annotated[
    str | None, Option("--graph", GRAPH_ID, metavar="ID", help="graph of the configuration, when it has several")
]


Message = Annotated[
    str | None, Option("--message", "-m", metavar="TEXT", help="why; the commit keeps it", show_default=False)
]
MetadataValues = Annotated[
    list[str] | None,
    Option(
        "--metadata",
        metavar="NAME=TEXT",
        help="for programs, kept with the commit; may be given again; or one JSON object",
        show_default=False,
    ),
]


def metadata_of(given: Sequence[str] | None) -> dict[str, object] | None:
    """The metadata of a commit: texts by name, or the values of a JSON object.

    Raises:
        click.BadParameter: a flag has another form, or a name is given twice.
    """
    found: dict[str, object] = {}
    for text in given or ():
        if text.lstrip().startswith("{"):
            try:
                values = json.loads(text)
            except ValueError as error:
                raise click.BadParameter(f"--metadata begins with a brace and is not a JSON object: {error}") from error
        else:
            name, equals, value = text.partition("=")
            if not equals or not name.strip():
                raise click.BadParameter(f"give --metadata NAME=TEXT or one JSON object, not {text!r}")
            values = {name.strip(): value}
        if repeated := next((name for name in values if name in found), None):
            raise click.BadParameter(f"--metadata gives {repeated!r} twice")
        found |= values
    return found or None


# ---- Flags that stand together in several commands: a parameter of such a type gets all of them


class PointArguments(TypedDict):
    """The arguments of methods that read one state."""

    branch: str
    snapshot: str | None
    version: int | None
    as_of: str | None


@frozen
class Point:
    """The state that is read."""

    branch: ReadBranch = None
    snapshot: SnapshotId = None
    graph_version: GraphVersion = None
    as_of: AsOf = None

    def arguments(self) -> PointArguments:
        """The state as methods take it.

        Raises:
            click.BadParameter: a branch stands beside a commit.
        """
        if self.branch is not None and self.snapshot is not None:
            raise click.BadParameter("give one of --branch and --snapshot")
        return {
            "branch": self.branch or "main",
            "snapshot": self.snapshot,
            "version": self.graph_version,
            "as_of": self.as_of,
        }


class NoteArguments(TypedDict):
    """The arguments of methods that write."""

    message: str | None
    metadata: dict[str, object] | None


@frozen
class CommitNote:
    """What the commit keeps about its reason."""

    message: Message = None
    metadata: MetadataValues = None

    def arguments(self) -> NoteArguments:
        """The note as methods take it.

        Raises:
            click.BadParameter: metadata have another form.
        """
        return {"message": self.message, "metadata": metadata_of(self.metadata)}


class FilterArguments(TypedDict):
    """The arguments of methods that filter changes."""

    kinds: list[Kind] | None
    types: list[str] | None
    ops: list[Operation] | None


@frozen
class ChangeFilter:
    """The changes that are shown."""

    kind: Kinds = None
    type: Types = None
    op: Operations = None

    def arguments(self) -> FilterArguments:
        """The filter as methods take it."""
        return {"kinds": self.kind, "types": self.type, "ops": self.op}
