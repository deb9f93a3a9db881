"""Commands made of functions: their parameters say what the command line gives, and click reads it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import Enum, StrEnum
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click
from typing_extensions import override

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Takes the value of a parameter, and gives it back or refuses it.
Check = Callable[[Any], object]


#: The variable by which the script of a shell asks which words may stand next.
COMPLETION = "_OMNIGRAPH_COMPLETE"


class Words(StrEnum):
    """What a word on the command line names, where the completion of shells can tell what there is."""

    GRAPH = "graph"
    BRANCH = "branch"
    SERVER = "server"
    PROFILE = "profile"
    QUERY = "query"


#: Gives the words that may stand for a parameter, from how the word begins.
Completer = Callable[[click.Context, click.Parameter, str], list["CompletionItem"]]
#: Those of each kind; the completion of shells fills it, and a command that runs has none.
COMPLETERS: dict[Words, Completer] = {}


class Argument:
    """A parameter that is given by its place; stands in the annotation of the parameter."""

    def __init__(
        self,
        *,
        metavar: str | None,
        help: str,
        show_default: bool = True,
        callback: Check | None = None,
        words: Words | None = None,
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.show_default = show_default
        self.callback = callback
        self.words = words


class Option:
    """A flag, with its spellings; stands in the annotation of the parameter."""

    def __init__(
        self,
        *spellings: str,
        metavar: str | None = None,
        help: str | None = None,
        hidden: bool = False,
        show_default: bool = True,
        callback: Check | None = None,
        min: int | None = None,
        words: Words | None = None,
    ) -> None:
        self.spellings = spellings
        self.metavar = metavar
        self.help = help
        self.hidden = hidden
        self.show_default = show_default
        self.callback = callback
        self.min = min
        self.words = words


def make_parameter(declared: inspect.Parameter) -> click.Parameter:
    """The parameter of a function as click reads it.

    Its annotation is `Annotated`, with an `Argument` or an `Option`. Without a default it is required; a list is given
    by several words.
    """
    kind, info = declared.annotation.__origin__, declared.annotation.__metadata__[0]
    item, is_list = _item_of(kind)
    default = declared.default
    settings: dict[str, Any] = {
        "type": _type_of(item, info),
        "metavar": info.metavar,
        "help": info.help,
        "callback": _called_back(info.callback),
        "shell_complete": _completed(info.words),
    }
    if default is inspect.Parameter.empty:
        settings["required"] = True
    else:
        # Click shows members of enumerations by their names.
        settings["default"] = default.value if isinstance(default, Enum) else default
    if isinstance(info, Argument):
        return click.Argument([declared.name], nargs=-1 if is_list else 1, **settings)
    return click.Option(
        [declared.name, *info.spellings],
        is_flag=item is bool,
        multiple=is_list,
        hidden=info.hidden,
        show_default=info.show_default,
        **settings,
    )


def called_with_lists(function: Callable[..., None], parameters: Sequence[click.Parameter]) -> Callable[..., None]:
    """The function, called with a list where click has several words, and with the default where it has none."""
    several = {item.name: item.default for item in parameters if item.multiple or item.nargs == -1}

    def call(**values: Any) -> None:
        for name, default in several.items():
            values[name] = list(values[name]) or default
        function(**values)

    return call


def _item_of(kind: object) -> tuple[object, bool]:
    """The type of one word, and whether there may be several; None stands for a parameter that is not given."""
    found = [item for item in get_args(kind) if item is not NoneType] if NoneType in get_args(kind) else [kind]
    if get_origin(found[0]) is list:
        return get_args(found[0])[0], True
    return found[0], False


def _type_of(item: object, info: Argument | Option) -> click.ParamType[Any]:
    if isinstance(item, type) and issubclass(item, StrEnum):
        return _Member(item)
    if isinstance(info, Option) and info.min is not None:
        return click.IntRange(min=info.min)
    return _TYPES[item]


#: How the words of each type are read.
_TYPES: dict[object, click.ParamType[Any]] = {
    str: click.STRING,
    int: click.INT,
    float: click.FLOAT,
    bool: click.BOOL,
    Path: click.Path(path_type=Path),
}


class _Member(click.Choice[StrEnum]):
    """A member of an enumeration, given by its value."""

    @override
    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice)


def _completed(words: Words | None) -> Completer | None:
    if words is None:
        return None

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = COMPLETERS.get(words)
        return [] if found is None else found(context, parameter, incomplete)

    return complete


def _called_back(check: Check | None) -> Callable[[click.Context, click.Parameter, object], object] | None:
    if check is None:
        return None
    return lambda _context, _parameter, value: check(value)
