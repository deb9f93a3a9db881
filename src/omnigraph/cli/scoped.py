"""Commands with a scope: the graph as their first argument or by flags, and those that follow from an operation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from functools import update_wrapper
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import click
from click.exceptions import Exit
from typing_extensions import override

from omnigraph.api.graph_api import GraphApi
from omnigraph.api.operation import Flag
from omnigraph.api.operation import Operation as Entry
from omnigraph.api.operations import OPERATIONS
from omnigraph.cli.capabilities import RULES, Capability, CommandRule, ScopeFlag
from omnigraph.cli.command_line import Argument, Option, Words, called_with_lists, make_parameter
from omnigraph.cli.console import NOTHING_WRITTEN, print_json, print_lines, terminal_progress
from omnigraph.cli.flags import (
    GRAPH_ID,
    AsJson,
    AsOf,
    Branch,
    Consent,
    EngineChoice,
    GraphVersion,
    Message,
    MetadataValues,
    Quiet,
    SnapshotId,
    Timeout,
    metadata_of,
    refuse_address,
)
from omnigraph.cli.scope import Address, ScopeFlags, check_flags, is_graph_folder, looks_like_graph
from omnigraph.client.addresses import looks_like_address
from omnigraph.pipeline.engine_choice import Engine

_Result = TypeVar("_Result")


# ---- Scope flags


#: Before the name of each parameter that fills the field of that name in `ScopeFlags`.
_PREFIX = "scope_"
#: The parameter of the graph as an argument, and those of the flags that name one.
_FIRST = f"{_PREFIX}positional"
ADDRESSES = tuple(_PREFIX + name for name in ("uri", "store", "server", "cluster", "profile"))


def scoped(command: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the graph as its first argument, and the scope flags of its rule.

    A parameter of type `Address` gets what they say, one of a group of flags those of the group. A flag that the
    command declares itself stays its own: beside the switch `log --graph`, `--graph-id` chooses the graph.
    """
    rule = RULES[command]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        groups = {name: _group(item) for name, item in signature.parameters.items()}
        own = [flag for name, item in signature.parameters.items() for flag in groups[name] or [item]]
        place = next((item.name for item in own if item.annotation is Address), None)
        first = list(_first_argument(rule))
        flags = list(_flag_parameters(rule, {word for item in own for word in _words(item)}))
        switches = [item for item in _SWITCHES if item.name not in signature.parameters]
        parameters = list(first)
        for item in own:
            parameters += flags if item.name == place else [item]
        if place is None:
            parameters += flags
        # A parameter without a default may follow one with: all of them are given by name.
        parameters = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in [*parameters, *switches]]

        def run(**values: Any) -> None:
            for switch in switches:
                del values[switch.name]
            given = ScopeFlags(**{item.name.removeprefix(_PREFIX): values.pop(item.name) for item in [*first, *flags]})
            check_flags(given, rule)
            if place is not None:
                values[place] = Address(given, rule)
            for name, group in groups.items():
                if group:
                    together = {item.name: values.pop(item.name) for item in group}
                    values[name] = signature.parameters[name].annotation(**together)
            try:
                function(**values)
            except KeyboardInterrupt as interrupt:
                if not hasattr(interrupt, "__notes__"):
                    interrupt.add_note(_outcome(rule, values.get(place or "")))
                raise

        update_wrapper(run, function)
        # How the command line is parsed follows from it.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # functions take it
        return run

    return decorate


def _outcome(rule: CommandRule, address: object) -> str:
    """What an interrupted command left, where the work itself did not say it."""
    if not rule.writes or (isinstance(address, Address) and not address.may_be_written):
        return NOTHING_WRITTEN
    if rule.capability is Capability.ANY:
        return "`omnigraph log` shows whether it was written"
    return "what it did until then stays"


class ScopedCommand(click.Command):
    """A command whose first argument may be the graph, with a help that shows what has to be given."""

    def __init__(self, name: str, function: Callable[..., None], *, hidden: bool = False) -> None:
        """Make a command of a function; its docstring is the help."""
        declared = inspect.signature(function, eval_str=True).parameters
        parameters = [make_parameter(item) for item in declared.values()]
        super().__init__(
            name,
            params=parameters,
            callback=called_with_lists(function, parameters),
            help=inspect.getdoc(function),
            hidden=hidden,
        )

    @override
    def make_parser(self, ctx: click.Context) -> Any:  # click publishes no name of its type
        """The parser of the command line, which tells the graph from the names behind it."""
        return _GraphFirst(super().make_parser(ctx), self._tell_graph)

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words behind the command; those that are too many are refused.

        Raises:
            UsageError: there are any.
        """
        strict, ctx.allow_extra_args = ctx.allow_extra_args, True
        extra = super().parse_args(ctx, args)
        ctx.allow_extra_args = strict
        if extra and not strict:
            ctx.fail(f"unexpected extra argument {' '.join(extra)}")
        return extra

    @override
    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage: arguments in their order, flags that are required, and that there are others."""
        shown = [item for item in self.get_params(ctx) if not getattr(item, "hidden", False)]
        arguments = [item for item in shown if item.param_type_name == "argument"]
        required = [item for item in shown if item.param_type_name == "option" and item.required]
        pieces = [
            f"{item.metavar if item.required else f'[{item.metavar}]'}{'' if item.nargs == 1 else '...'}"
            for item in arguments
        ]
        return [*pieces, *(f"{item.opts[0]} {item.metavar}" for item in required), "[OPTIONS]"]

    def _tell_graph(self, given: dict[str, Any], extra: list[str]) -> list[str]:
        """Give the words of a command line to the arguments; returns those that are too many."""
        arguments = [item.name for item in self.params if item.param_type_name == "argument" and item.nargs == 1]
        flags = {flag for item in self.params for flag in item.opts}
        for word in (*(given.get(name) for name in arguments), *extra):
            if isinstance(word, str):
                refuse_file(word, flags)
        if not arguments or arguments[0] != _FIRST:
            return extra
        found = [given.pop(name, None) for name in arguments]
        # What stands for a word that is missing is nothing that click publishes.
        words = [word for word in found if isinstance(word, str)] + extra
        is_addressed = any(isinstance(given.get(name), str) for name in ADDRESSES)
        names = arguments
        if words and not begins_with_graph(words, len(arguments) - 1, is_addressed=is_addressed):
            names = arguments[1:]
        given.update(zip(names, words, strict=False))
        return words[len(names) :]


class CommandGroup(click.Group):
    """Commands below one word, or all of them; listed in their order."""

    def __init__(self, help: str, **settings: Any) -> None:
        super().__init__(help=help, no_args_is_help=True, **settings)

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def register(self, name: str, *, hidden: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Make a function one of the commands."""

        def add(function: Callable[..., None]) -> Callable[..., None]:
            self.add_command(ScopedCommand(name, function, hidden=hidden))
            return function

        return add


def begins_with_graph(words: Sequence[str], names: int, *, is_addressed: bool) -> bool:
    """Whether the first of all arguments is the graph; `names` is how many the command takes besides.

    It is the graph if it looks like one, if there is a graph in the folder of that name, or if there are more words
    than names. A flag that names the graph leaves all words to the names.

    >>> begins_with_graph(["papers.omni"], 1, is_addressed=False), begins_with_graph(["recent"], 1, is_addressed=False)
    (True, False)

    Raises:
        click.BadParameter: a graph is in another place, or is given twice.
    """
    first, *others = words
    if not names:
        return True
    if is_addressed:
        if looks_like_address(first):
            raise click.BadParameter(f"give the graph once: {first} is one, and a flag names one")
        return False
    if looks_like_graph(first) or is_graph_folder(first):
        return True
    late = next(filter(looks_like_graph, others), None)
    if late is not None and len(words) > names:
        raise click.BadParameter(f"the graph comes first: give {late} before {first}")
    return len(words) > names


#: What a file is by its ending, and the flags that take it, the likeliest first.
_FILES = (
    ((".pg",), "a schema file", ("--schema",)),
    ((".gq",), "a query file", ("--query",)),
    ((".yaml", ".yml"), "a mapping", ("--mapping",)),
    ((".jsonl", ".jsonl.gz", ".jsonl.zst"), "a file of records", ("--data",)),
    ((".csv", ".tsv", ".parquet", ".orc"), "a table", ("--from-data",)),
)


def refuse_file(word: str, flags: Collection[str]) -> None:
    """Refuse a file where a graph or a name is expected, if a flag of the command takes such files.

    Raises:
        click.BadParameter: it is one.
    """
    if looks_like_graph(word):
        # A graph may have any name below its folder or bucket.
        return
    for endings, what, takers in _FILES:
        flag = next((taker for taker in takers if taker in flags), None)
        if flag is not None and word.endswith(endings):
            raise click.BadParameter(f"{word} looks like {what}: pass it with {flag} {word}")


class _GraphFirst:
    """A parser of command lines; `tell` gets the words by argument, and those that are too many."""

    def __init__(self, parser: Any, tell: Callable[[dict[str, Any], list[str]], list[str]]) -> None:
        self._parser = parser
        self._tell = tell

    def parse_args(self, args: list[str]) -> tuple[dict[str, Any], list[str], list[Any]]:
        """The values by parameter, the words that are too many, and the parameters in the order of the words."""
        given, extra, order = self._parser.parse_args(args=args)
        return given, self._tell(given, extra), order

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def _group(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The flags that a parameter stands for, where it is a group of them."""
    kind = parameter.annotation
    if not isinstance(kind, type) or not is_dataclass(kind):
        return []
    hints = get_type_hints(kind, include_extras=True)
    return [item.replace(annotation=hints[item.name]) for item in inspect.signature(kind).parameters.values()]


def _words(parameter: inspect.Parameter) -> Iterator[str]:
    """The spellings of a flag that a command declares."""
    for info in getattr(parameter.annotation, "__metadata__", ()):
        yield from getattr(info, "spellings", ())


def _first_argument(rule: CommandRule) -> Iterator[inspect.Parameter]:
    """The graph as an argument, where a command works on one."""
    if ScopeFlag.STORE in rule.flags:
        yield _parameter(_FIRST, _argument("GRAPH", _GRAPH if ScopeFlag.SERVER in rule.flags else _STORAGE))
    elif ScopeFlag.SERVER in rule.flags:
        yield _parameter(_FIRST, _argument("SERVER", _SERVER))


_GRAPH = "the graph: a folder, file:// or s3://, or the address behind a server (http://); or give it by a flag"
_STORAGE = "the graph: a folder, file:// or s3://; or give it by a flag"
_SERVER = "the server: its address, or its name in your configuration; or give it by a flag"


def _flag_parameters(rule: CommandRule, taken: set[str]) -> Iterator[inspect.Parameter]:
    if ScopeFlag.STORE in rule.flags:
        yield _parameter(f"{_PREFIX}uri", _option("--uri", metavar="URI", help=_GRAPH, hidden=True))
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


_WORDS = {"--server": Words.SERVER, "--store": Words.GRAPH, "--profile": Words.PROFILE}


def _argument(metavar: str, help: str) -> object:
    words = Words.SERVER if metavar == "SERVER" else Words.GRAPH
    return Annotated[str | None, Argument(metavar=metavar, help=help, words=words)]


def _option(*spellings: str, metavar: str, help: str, hidden: bool) -> object:
    words = _WORDS.get(spellings[0])
    info = Option(*spellings, metavar=metavar, help=help, hidden=hidden, show_default=False, words=words)
    return Annotated[str | None, info]


def _parameter(name: str, annotation: object, default: object = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


#: Accepted by every command; most have nothing to keep quiet about, and nothing to consent to.
_SWITCHES = tuple(
    _parameter(name, Annotated[bool, Option(f"--{name}", hidden=True)], False) for name in ("yes", "quiet")
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
    "message": Message,
    "metadata": MetadataValues,
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
            if "metadata" in declared:
                values["metadata"] = metadata_of(cast("list[str] | None", values["metadata"]))
            if values.get("engine", Engine.AUTO) is not Engine.AUTO:
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
            # Some answers say that the operation would fail.
            if code := getattr(found, "exit_code", 0):
                raise Exit(code)

        run.__signature__ = inspect.Signature(list(_parameters(entry, declared)))  # type: ignore[attr-defined]  # functions take it
        run.__doc__ = renderer.__doc__
        _RENDERERS[operation_id] = renderer
        return scoped(command.name)(run)

    return decorate


def _parameters(entry: Entry, declared: Mapping[str, inspect.Parameter]) -> Iterator[inspect.Parameter]:
    assert entry.command is not None
    flags = entry.command.flags
    names = dict.fromkeys([*flags, *(name for name in declared if name not in _NOT_FLAGS)])
    own = [_parameter_of(declared[name], flags.get(name), entry.command.name) for name in names]
    yield from (item for item in own if item.default is _EMPTY)
    yield _parameter("address", Address, _EMPTY)
    yield from (item for item in own if item.default is not _EMPTY)
    if entry.command.loss is not None:
        yield _parameter("yes", Consent, False)
    if entry.cost.writes:
        yield _parameter("quiet", Quiet, False)
    yield _parameter("json", AsJson, False)


#: The parameters of derived commands that are branches.
_BRANCHES = {
    *(("branch create", "base"), ("branch delete", "name"), ("branch merge", "source"), ("branch merge", "into")),
    ("tag create", "commit"),
}


def _parameter_of(declared: inspect.Parameter, flag: Flag | None, command: str) -> inspect.Parameter:
    """A parameter of the method as an argument if it is required, else as a flag."""
    name, default = declared.name, declared.default
    if flag is None:
        return _parameter(name, _SHARED[name], Engine(default) if name == "engine" else default)
    words = Words.BRANCH if (command, name) in _BRANCHES else None
    if default is _EMPTY:
        info = Argument(metavar=flag.metavar, help=flag.help, callback=refuse_address, words=words)
        return _parameter(name, Annotated[str, info], default)
    spelling = flag.spelling or f"--{name.replace('_', '-')}"
    option = Option(spelling, metavar=flag.metavar, help=flag.help, words=words)
    if flag.choices:
        choice = StrEnum(name, flag.choices) | None  # type: ignore[operator]  # this makes a class
        return _parameter(name, Annotated[choice, option], default)
    return _parameter(name, Annotated[str | None if default is None else type(default), option], default)
