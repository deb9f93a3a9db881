"""Shared flags, groups of them, the scope flags of every command, and commands that follow from an operation."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar

import typer
from typer.core import TyperCommand

from omnigraph.api.graph_api import GraphApi
from omnigraph.api.operation import Flag
from omnigraph.api.operation import Operation as Entry
from omnigraph.api.operations import OPERATIONS
from omnigraph.cli.capabilities import RULES, Capability, CommandRule, ScopeFlag
from omnigraph.cli.output import print_json, print_lines, terminal_progress
from omnigraph.cli.scope import Address, ScopeFlags, check_flags
from omnigraph.client.addresses import is_server_url, looks_like_address
from omnigraph.errors import BadRequestError, InputFileError

if TYPE_CHECKING:
    from omnigraph.core.source import SourceText

_Result = TypeVar("_Result")


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


class WorkerName(StrEnum):
    """The names of workers, with `auto` for a choice by size."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


SchemaFile = Annotated[Path, typer.Option("--schema", metavar="FILE", help="schema file (.pg)", show_default=False)]
QueryFile = Annotated[Path | None, typer.Option("--query", metavar="FILE", help="query file (.gq)", show_default=False)]
QueryText = Annotated[
    str | None, typer.Option("--query-string", "-e", metavar="GQ", help="query text", show_default=False)
]


def refuse_address(text: str | None) -> str | None:
    """Refuse the address of a graph where a name is expected: commands that take names get the graph by a flag.

    Raises:
        typer.BadParameter: it is one.
    """
    if text is not None and looks_like_address(text):
        flag = "--server" if is_server_url(text) else "--store"
        raise typer.BadParameter(f"{text} looks like the address of a graph: pass it with {flag} {text}")
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
        metavar="NAME", help="query inside the source; without one, stored on a server", callback=_query_name
    ),
]
CommitId = Annotated[str, typer.Argument(metavar="ID", help="commit id", callback=refuse_address)]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]

Store = Annotated[
    str | None, typer.Option("--store", metavar="URI", help="the storage of the graph", show_default=False)
]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="branch")]
ReadBranch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="branch; main is the default")]
SnapshotId = Annotated[str | None, typer.Option("--snapshot", metavar="ID", help="read the graph right after a commit")]
GraphVersion = Annotated[int | None, typer.Option("--graph-version", metavar="N", help="read the branch at a version")]
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="TIME", help="read the branch at a moment")]
Params = Annotated[str | None, typer.Option("--params", metavar="JSON", help="parameters as a JSON object")]
ParamsFile = Annotated[Path | None, typer.Option("--params-file", metavar="FILE", help="the same from a file")]
OptionalSchemaFile = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE", help="schema file (.pg), instead of a graph")
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
    WorkerName, typer.Option("--engine", help="where the work is done; auto: Spark when it is much")
]
Kinds = Annotated[
    list[Kind] | None, typer.Option("--kind", help="only nodes or only edges; may be given again", show_default=False)
]
Types = Annotated[
    list[str] | None, typer.Option("--type", metavar="T", help="only this type; may be given again", show_default=False)
]
Operations = Annotated[
    list[Operation] | None, typer.Option("--op", help="only this operation; may be given again", show_default=False)
]
PageLimit = Annotated[int, typer.Option("--limit", metavar="N", help="changes per page")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="configuration of a server", show_default=False)
]
ConfiguredGraph = Annotated[
    str | None, typer.Option("--graph", GRAPH_ID, metavar="ID", help="graph of the configuration, when it has several")
]


# ---- Flags that stand together in several commands: a parameter of such a type gets all of them


class PointArguments(TypedDict):
    """The arguments of methods that read one state."""

    branch: str
    snapshot: str | None
    version: int | None
    as_of: str | None


@dataclass(frozen=True, slots=True)
class Point:
    """The state that is read."""

    branch: ReadBranch = None
    snapshot: SnapshotId = None
    graph_version: GraphVersion = None
    as_of: AsOf = None

    def arguments(self) -> PointArguments:
        """The state as methods take it.

        Raises:
            typer.BadParameter: a branch stands beside a commit.
        """
        if self.branch is not None and self.snapshot is not None:
            raise typer.BadParameter("give one of --branch and --snapshot")
        return {
            "branch": self.branch or "main",
            "snapshot": self.snapshot,
            "version": self.graph_version,
            "as_of": self.as_of,
        }


class FilterArguments(TypedDict):
    """The arguments of methods that filter changes."""

    kinds: list[Kind] | None
    types: list[str] | None
    ops: list[Operation] | None


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """The changes that are shown."""

    kind: Kinds = None
    type: Types = None
    op: Operations = None

    def arguments(self) -> FilterArguments:
        """The filter as methods take it."""
        return {"kinds": self.kind, "types": self.type, "ops": self.op}


#: Why a name alone needs a server.
STORED = "a query by its name alone is stored on a server"


@dataclass(frozen=True, slots=True)
class QueryFlags:
    """A query and its parameters, from files or from the command line."""

    query: QueryFile = None
    query_string: QueryText = None
    params: Params = None
    params_file: ParamsFile = None

    def source(self) -> SourceText:
        """The one source that the flags name."""
        from omnigraph.core.source import SourceText
        from omnigraph.lang.query.compiler import read_queries

        if (self.query is None) == (self.query_string is None):
            raise typer.BadParameter("give exactly one of --query FILE and -e GQ")
        if self.query is not None:
            return read_queries(self.query)
        if self.query_string is None or not self.query_string.strip():
            raise typer.BadParameter("the query text is empty")
        return SourceText(self.query_string, "<query>")

    def source_or(self, name: str | None) -> SourceText | str:
        """The source that the flags name; without one the name of a query that a server has stored."""
        if self.query is None and self.query_string is None and name is not None:
            return name
        return self.source()

    def values(self) -> dict[str, object]:
        """The parameters that the flags name."""
        return read_params(self.params, self.params_file)


def read_params(text: str | None, path: Path | None) -> dict[str, object]:
    """The parameters that the flags name.

    Raises:
        BadRequestError: they are not a JSON object.
        InputFileError: the file cannot be read.
    """
    if text is not None and path is not None:
        raise typer.BadParameter("give one of --params and --params-file")
    if path is not None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputFileError(str(path), str(error)) from error
    if text is None:
        return {}
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the parameters are not JSON: {error}") from error
    if not isinstance(values, dict):
        raise BadRequestError('the parameters are not a JSON object such as {"name": "value"}')
    return values


# ---- Scope flags


#: Before the name of each parameter that fills the field of that name in `ScopeFlags`.
_PREFIX = "scope_"
#: Fields of it that name a graph.
_ADDRESSES = ("positional", "uri", "store", "server", "profile")


def scoped(command: str, *, positional: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the scope flags of its rule.

    A parameter of type `Address` gets what they say, one of a group of flags those of the group. With `positional` the
    graph may be an argument too. A flag that the command declares itself stays its own: beside the switch
    `log --graph`, `--graph-id` chooses the graph.
    """
    rule = RULES[command]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        groups = {name: _group(item) for name, item in signature.parameters.items()}
        own = [flag for name, item in signature.parameters.items() for flag in groups[name] or [item]]
        place = next((item.name for item in own if item.annotation is Address), None)
        flags = list(_flag_parameters(rule, positional, {word for item in own for word in _words(item)}))
        switches = [item for item in _SWITCHES if item.name not in signature.parameters]
        parameters: list[inspect.Parameter] = []
        for item in own:
            parameters += flags if item.name == place else [item]
        if place is None:
            parameters += flags
        # A parameter without a default may follow one with: all of them are given by name.
        parameters = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in [*parameters, *switches]]

        def run(**values: Any) -> None:
            for switch in switches:
                del values[switch.name]
            given = ScopeFlags(**{item.name.removeprefix(_PREFIX): values.pop(item.name) for item in flags})
            check_flags(given, rule)
            if place is not None:
                values[place] = Address(given, rule)
            for name, group in groups.items():
                if group:
                    together = {item.name: values.pop(item.name) for item in group}
                    values[name] = signature.parameters[name].annotation(**together)
            function(**values)

        update_wrapper(run, function)
        # Typer reads both: how the command line is parsed follows from them.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # functions take it
        run.__annotations__ = {item.name: item.annotation for item in parameters}
        return run

    return decorate


class ScopedCommand(TyperCommand):
    """A command that says where the graph belongs when it stands where no argument is left."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # typer does not publish the type of a context
        """Parse the words behind the command; those that are too many are refused.

        Raises:
            UsageError: there are any.
        """
        strict, ctx.allow_extra_args = ctx.allow_extra_args, True
        extra: list[str] = super().parse_args(ctx, args)
        ctx.allow_extra_args = strict
        if extra and not strict:
            ctx.fail(f"unexpected extra argument {' '.join(extra)}{self._advice(ctx, extra)}")
        return extra

    def _advice(self, ctx: Any, extra: list[str]) -> str:
        shown = (item for item in self.params if not getattr(item, "hidden", False))
        known = {word for item in shown for word in item.opts}
        flag = "--server" if is_server_url(extra[-1]) else "--store"
        is_addressed = any(ctx.params.get(_PREFIX + name) for name in _ADDRESSES)
        if is_addressed or flag not in known:
            return ""
        return f": if it is the graph, give it with {flag}"


def use_scoped_commands(app: typer.Typer) -> None:
    """Make every command of an application, and of those below it, a `ScopedCommand`."""
    for command in app.registered_commands:
        command.cls = ScopedCommand
    for group in app.registered_groups:
        if isinstance(group.typer_instance, typer.Typer):
            use_scoped_commands(group.typer_instance)


def _group(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The flags that a parameter stands for, where it is a group of them."""
    kind = parameter.annotation
    if not isinstance(kind, type) or not is_dataclass(kind):
        return []
    return list(inspect.signature(kind, eval_str=True).parameters.values())


def _words(parameter: inspect.Parameter) -> Iterator[str]:
    """The spellings of a flag that a command declares."""
    for info in getattr(parameter.annotation, "__metadata__", ()):
        # Typer takes the first spelling for a default until it knows better.
        words = (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))
        yield from (word for word in words if isinstance(word, str))


def _flag_parameters(rule: CommandRule, positional: bool, taken: set[str]) -> Iterator[inspect.Parameter]:
    if positional:
        yield _parameter(f"{_PREFIX}positional", _GRAPH_ARGUMENT)
    if ScopeFlag.STORE in rule.flags and "--store" not in taken:
        yield _parameter(f"{_PREFIX}uri", _option("--uri", metavar="URI", help=_URI, hidden=positional))
    words: list[tuple[ScopeFlag, str, tuple[str, ...], str, str]] = [
        (ScopeFlag.SERVER, "server", ("--server",), "NAME|URL", "a server, or a graph behind one"),
        (ScopeFlag.GRAPH, "graph", ("--graph", GRAPH_ID), "ID", "which graph of the server"),
        (ScopeFlag.STORE, "store", ("--store",), "URI", "the storage of the graph"),
        (ScopeFlag.AS, "actor", ("--as",), "ACTOR", "actor recorded on the write"),
        (ScopeFlag.PROFILE, "profile", ("--profile",), "NAME", "a scope of your configuration"),
        (ScopeFlag.CLUSTER, "cluster", ("--cluster",), "ROOT", "a cluster"),
    ]
    for flag, name, spellings, metavar, help_ in words:
        is_useful = flag in rule.flags and flag is not ScopeFlag.CLUSTER
        # There are no clusters yet, and without them nothing direct has several graphs to choose from.
        if flag is ScopeFlag.GRAPH and rule.capability is Capability.DIRECT:
            is_useful = False
        if not (free := [word for word in spellings if word not in taken]):
            continue
        option = _option(*free, metavar=metavar, help=help_, hidden=not is_useful)
        yield _parameter(_PREFIX + name, option)


_URI = "the graph: storage, or the address of a server"
_GRAPH_ARGUMENT = Annotated[str | None, typer.Argument(metavar="URI", help="the graph: a local path, file:// or s3://")]


def _option(*spellings: str, metavar: str, help: str, hidden: bool) -> object:
    info = typer.Option(*spellings, metavar=metavar, help=help, hidden=hidden, show_default=False)
    return Annotated[str | None, info]


def _parameter(name: str, annotation: object, default: object = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


#: Accepted by every command; most have nothing to keep quiet about, and nothing to consent to.
_SWITCHES = tuple(
    _parameter(name, Annotated[bool, typer.Option(f"--{name}", hidden=True)], False) for name in ("yes", "quiet")
)


# ---- Commands that follow from the catalogue: flags from the method and entry of an operation, text from a renderer


_RENDERERS: dict[str, Callable[..., Iterable[str]]] = {}
#: Parameters that a command line does not give.
_NOT_FLAGS = frozenset({"self", "actor", "spark", "progress", "cancel"})
#: Parameters that have the same flag in every command.
_SHARED = {
    "branch": Branch,
    "snapshot": SnapshotId,
    "version": GraphVersion,
    "as_of": AsOf,
    "engine": EngineChoice,
    "timeout_s": Timeout,
}
_EMPTY = inspect.Parameter.empty


def derived(operation_id: str) -> Callable[[Callable[[_Result], Iterable[str]]], Callable[..., None]]:
    """Make a renderer the command of its operation: it gives the lines that people read, its docstring is the help."""
    entry = OPERATIONS[operation_id]
    assert entry.command is not None, "its entry says how it is called"
    command, call = entry.command, entry.call or ""
    declared = inspect.signature(getattr(GraphApi, call)).parameters

    def decorate(renderer: Callable[[_Result], Iterable[str]]) -> Callable[..., None]:
        def run(address: Address, *, json: bool, yes: bool = False, quiet: bool = False, **values: object) -> None:
            if "actor" in declared:
                values["actor"] = address.actor
            if values.get("engine", WorkerName.AUTO) is not WorkerName.AUTO:
                address.refuse_on_server("--engine")
            if command.loss is not None:
                address.require_consent(command.loss.format(**values), yes=yes, json=json)
            if entry.cost.writes:
                address.echo(f"{command.name} in", quiet=quiet)
            if "progress" in declared:
                values["progress"] = terminal_progress(quiet=quiet)
            with address.open(read_only=not entry.cost.writes) as graph:
                found = getattr(graph, call)(**values)
            if json:
                document = found if entry.member is None else entry.result_class(**{entry.member: found})
                print_json(document.to_json())
            else:
                print_lines(renderer(found))

        run.__signature__ = inspect.Signature(list(_parameters(entry, declared)))  # type: ignore[attr-defined]  # functions take it
        run.__doc__ = renderer.__doc__
        _RENDERERS[operation_id] = renderer
        return scoped(command.name, positional=command.is_positional)(run)

    return decorate


def _parameters(entry: Entry, declared: Mapping[str, inspect.Parameter]) -> Iterator[inspect.Parameter]:
    assert entry.command is not None
    flags = entry.command.flags
    names = dict.fromkeys([*flags, *(name for name in declared if name not in _NOT_FLAGS)])
    own = [_parameter_of(declared[name], flags.get(name)) for name in names]
    yield from (item for item in own if item.default is _EMPTY)
    yield _parameter("address", Address, _EMPTY)
    yield from (item for item in own if item.default is not _EMPTY)
    if entry.command.loss is not None:
        yield _parameter("yes", Consent, False)
    if entry.cost.writes:
        yield _parameter("quiet", Quiet, False)
    yield _parameter("json", AsJson, False)


def _parameter_of(declared: inspect.Parameter, flag: Flag | None) -> inspect.Parameter:
    """A parameter of the method as an argument if it is required, else as a flag."""
    name, default = declared.name, declared.default
    if flag is None:
        return _parameter(name, _SHARED[name], WorkerName(default) if name == "engine" else default)
    if default is _EMPTY:
        info = typer.Argument(metavar=flag.metavar, help=flag.help, callback=refuse_address)
        return _parameter(name, Annotated[str, info], default)
    option = typer.Option(flag.spelling or f"--{name.replace('_', '-')}", metavar=flag.metavar, help=flag.help)
    if flag.choices:
        choice = StrEnum(name, flag.choices) | None  # type: ignore[operator]  # this makes a class
        return _parameter(name, Annotated[choice, option], default)
    return _parameter(name, Annotated[str | None if default is None else type(default), option], default)
