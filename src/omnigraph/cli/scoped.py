"""Scope flags on every command: declared once, shown where they mean something, refused where they do not."""

from __future__ import annotations

import inspect
from functools import update_wrapper
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from omnigraph.cli.capabilities import RULES, Capability, ScopeFlag
from omnigraph.cli.options import GRAPH_ID
from omnigraph.cli.resolution import ScopeFlags, check_flags
from omnigraph.cli.scope import Address
from omnigraph.cli.urls import is_server_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omnigraph.cli.capabilities import CommandRule

#: Before the name of each parameter that fills the field of that name in `ScopeFlags`.
_PREFIX = "scope_"
#: Fields of it that name a graph.
_ADDRESSES = ("positional", "uri", "store", "server", "profile")


def scoped(
    command: str, *, positional: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the scope flags of its rule.

    A parameter of type `Address` gets what they say. With `positional` the graph may be an argument too. A flag that
    the command declares itself stays its own: beside the switch `log --graph`, `--graph-id` chooses the graph.
    """
    rule = RULES[command]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        own = signature.parameters.values()
        place = next((item.name for item in own if item.annotation is Address), None)
        flags = list(
            _flag_parameters(rule, positional, {word for item in own for word in _words(item)})
        )
        switches = [item for item in _SWITCHES if item.name not in signature.parameters]
        parameters: list[inspect.Parameter] = []
        for item in own:
            parameters += flags if item.name == place else [item]
        if place is None:
            parameters += flags
        # A parameter without a default may follow one with: all of them are given by name.
        parameters = [
            item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in [*parameters, *switches]
        ]

        def run(**values: Any) -> None:
            for switch in switches:
                del values[switch.name]
            given = ScopeFlags(
                **{item.name.removeprefix(_PREFIX): values.pop(item.name) for item in flags}
            )
            check_flags(given, rule)
            if place is not None:
                values[place] = Address(given, rule)
            function(**values)

        update_wrapper(run, function)
        # Typer reads both: how the command line is parsed follows from them.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # functions take it
        run.__annotations__ = {item.name: item.annotation for item in parameters}
        return run

    return decorate


class ScopedCommand(TyperCommand):
    """A command that says where the graph belongs when it stands where no argument is left."""

    def parse_args(
        self, ctx: Any, args: list[str]
    ) -> list[str]:  # typer does not publish the type of a context
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


def _words(parameter: inspect.Parameter) -> Iterator[str]:
    """The spellings of a flag that a command declares."""
    for info in getattr(parameter.annotation, "__metadata__", ()):
        # Typer takes the first spelling for a default until it knows better.
        words = (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))
        yield from (word for word in words if isinstance(word, str))


def _flag_parameters(
    rule: CommandRule, positional: bool, taken: set[str]
) -> Iterator[inspect.Parameter]:
    if positional:
        yield _parameter("positional", _GRAPH_ARGUMENT)
    if ScopeFlag.STORE in rule.flags and "--store" not in taken:
        yield _parameter("uri", _option("--uri", metavar="URI", help=_URI, hidden=positional))
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
        yield _parameter(name, option)


_URI = "the graph: storage, or the address of a server"
_GRAPH_ARGUMENT = Annotated[
    str | None, typer.Argument(metavar="URI", help="the graph: a local path, file:// or s3://")
]


def _option(*spellings: str, metavar: str, help: str, hidden: bool) -> Any:
    info = typer.Option(*spellings, metavar=metavar, help=help, hidden=hidden, show_default=False)
    return Annotated[str | None, info]


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        _PREFIX + name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _switch(name: str) -> inspect.Parameter:
    info = typer.Option(f"--{name}", hidden=True)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, info]
    )


#: Accepted by every command; most have nothing to keep quiet about, and nothing to consent to.
_SWITCHES = (_switch("yes"), _switch("quiet"))
