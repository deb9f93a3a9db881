"""What a command reads: texts of queries, their parameters, standard input, and answers."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Unpack

import click
from click.exceptions import Exit

from omnigraph.cli.command_line import Option
from omnigraph.cli.console import NOTHING_WRITTEN, is_confirmed, print_warning
from omnigraph.core.source import UNNAMED, SourceText, decode_source
from omnigraph.errors import BadRequestError, InputFileError, OmniError, ParameterError, ResourceLimitError
from omnigraph.errors.writes import with_source_named
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from omnigraph.api.graph_api import GraphApi
    from omnigraph.api.reading_api import TargetKeywords
    from omnigraph.api.results import MutationResult
    from omnigraph.client.remote_graph import RemoteGraph
    from omnigraph.lang.query.signature import FieldDescriptor

# ---- Standard input


#: The spelling of standard input where a file is expected, and what messages call it.
STDIN = "-"
STDIN_NAME = "<stdin>"


def _standard_input() -> bytes:
    """Everything that comes from standard input.

    Raises:
        BadRequestError: nothing comes.
    """
    binary = getattr(sys.stdin, "buffer", None)
    found: bytes = sys.stdin.read().encode() if binary is None else binary.read()
    if not found.strip():
        raise BadRequestError("standard input is empty; it can be read once, by one flag")
    return found


@contextmanager
def spooled_records(path: str | None) -> Iterator[str | None]:
    """The file of the records to load; those of standard input are kept in one while the block runs.

    Raises:
        OmniError: what the block raises; it calls the kept file standard input.
    """
    if path != STDIN:
        yield path
        return
    with NamedTemporaryFile("wb", prefix="omnigraph-stdin-", suffix=".jsonl") as file:
        binary = getattr(sys.stdin, "buffer", None)
        if binary is None:
            file.write(sys.stdin.read().encode())
        else:
            shutil.copyfileobj(binary, file)
        file.flush()
        try:
            yield file.name
        except OmniError as error:
            raise with_source_named(error, file.name, STDIN_NAME) from None


# ---- Texts of queries


QueryFile = Annotated[Path | None, Option("--query", metavar="FILE", help="query file (.gq); - reads standard input")]
QueryText = Annotated[str | None, Option("--query-string", "-e", metavar="GQ", help="query text")]
#: Why a name alone needs a server.
STORED = "a query by its name alone is stored on a server"


@frozen
class QuerySource:
    """The text of a query, from a file or from the command line."""

    query: QueryFile = None
    query_string: QueryText = None

    @property
    def is_given(self) -> bool:
        """Whether there is a text."""
        return self.query is not None or self.query_string is not None

    def text(self) -> SourceText:
        """The one text that the flags name.

        Raises:
            click.BadParameter: they name none, or two.
        """
        if (self.query is None) == (self.query_string is None):
            raise click.BadParameter("give exactly one of --query FILE and -e GQ")
        if self.query is not None and str(self.query) == STDIN:
            from omnigraph.lang.query.syntax.parser import SYNTAX_ERROR

            return decode_source(_standard_input(), STDIN_NAME, code=SYNTAX_ERROR)
        if self.query is not None:
            from omnigraph.lang.query.compiler import read_queries

            return read_queries(self.query)
        if self.query_string is None or not self.query_string.strip():
            raise click.BadParameter("the query text is empty")
        return SourceText(self.query_string, "<query>")

    def text_or(self, name: str | None) -> SourceText | str:
        """The text that the flags name; without one the name of a query that a server has stored."""
        return name if name is not None and not self.is_given else self.text()


# ---- Parameters


Params = Annotated[
    str | None, Option("--params", metavar="JSON", help="parameters as a JSON object; - reads standard input")
]
ParamsFile = Annotated[Path | None, Option("--params-file", metavar="FILE", help="the same from a file")]
Param = Annotated[
    list[str] | None,
    Option(
        "--param",
        metavar="NAME=VALUE",
        help="one parameter, read as the type that the query declares; may be given again",
        show_default=False,
    ),
]
#: The declared parameters of a query, found out only where a text has to be read as one of their types.
Declared = Callable[[], Sequence["FieldDescriptor"]]


@frozen
class ParameterFlags:
    """The parameters of a query."""

    param: Param = None
    params: Params = None
    params_file: ParamsFile = None

    @property
    def are_given(self) -> bool:
        """Whether there are any."""
        return any(item is not None for item in (self.param, self.params, self.params_file))

    def read(self) -> GivenParameters:
        """What the flags say, before any query is looked at.

        Raises:
            click.BadParameter: a flag is malformed, or a parameter is given twice.
            BadRequestError: they are not a JSON object.
            InputFileError: the file cannot be read.
        """
        values, texts = self._object(), assignments(self.param or [])
        if twice := values.keys() & texts.keys():
            raise click.BadParameter(f"the parameter `{min(twice)}` is given twice")
        return GivenParameters(values, texts)

    def _object(self) -> dict[str, object]:
        if self.params is not None and self.params_file is not None:
            raise click.BadParameter("give one of --params and --params-file")
        text: str | bytes | None = self.params
        if STDIN in (self.params, str(self.params_file)):
            text = _standard_input()
        elif self.params_file is not None:
            try:
                text = self.params_file.read_bytes()
            except OSError as error:
                raise InputFileError(str(self.params_file), error.strerror or str(error)) from error
        if text is None:
            return {}
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadRequestError(f"the parameters are not JSON: {error}") from error
        if not isinstance(values, dict):
            raise BadRequestError('the parameters are not a JSON object such as {"name": "value"}')
        return values


@frozen
class GivenParameters:
    """Parameters as values, and as texts whose types the query declares."""

    values: dict[str, object]
    texts: dict[str, str]

    def typed(self, declared: Declared, query_name: str | None = None) -> dict[str, object]:
        """All of them as values; texts of unknown parameters stay texts, and the query refuses them.

        Raises:
            ParameterError: a text is not a value of its type.
        """
        if not self.texts:
            return self.values
        fields = {field.name: field for field in declared()}
        values, problems = dict(self.values), {}
        for name, text in self.texts.items():
            try:
                values[name] = typed_value(fields[name], text) if name in fields else text
            except ValueError as problem:
                problems[name] = f"`{name}`: {problem}"
        if problems:
            raise ParameterError(query_name or UNNAMED, problems)
        return values


def assignments(words: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` words as names and texts; a name may begin with the `$` that it has in the query."""
    texts: dict[str, str] = {}
    for word in words:
        name, sign, text = word.partition("=")
        name = name.strip().removeprefix("$")
        if not sign or not name:
            raise click.BadParameter(f"--param takes NAME=VALUE, not `{word}`")
        if name in texts:
            raise click.BadParameter(f"the parameter `{name}` is given twice")
        texts[name] = text
    return texts


def typed_value(field: FieldDescriptor, text: str) -> object:
    """A text as a value of a parameter. Integers, dates and times stay texts, which is how JSON may carry them.

    >>> from omnigraph.lang.query.signature import FieldDescriptor, ValueKind
    >>> typed_value(FieldDescriptor(name="flag", kind=ValueKind.BOOL, nullable=False), "true")
    True

    Raises:
        ValueError: it is none.
    """
    from omnigraph.lang.query.signature import ValueKind

    if text == "null" and field.nullable and field.kind is not ValueKind.STRING:
        return None
    match field.kind:
        case ValueKind.BOOL:
            if text not in ("true", "false"):
                raise ValueError(f"{text!r} is not a Bool: give true or false")
            return text == "true"
        case ValueKind.FLOAT:
            try:
                return float(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a number") from None
        case ValueKind.LIST | ValueKind.VECTOR:
            return _list(text)
        case _:
            return text


def _list(text: str) -> list[object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise ValueError(f"{text!r} is not a list: give it as JSON, such as [1, 2]")
    return found


def parameters_of(
    graph: GraphApi, text: SourceText, name: str | None, **target: Unpack[TargetKeywords]
) -> Sequence[FieldDescriptor]:
    """The parameters of a query of a text, on a state of a graph."""
    from omnigraph.lang.query.compiler import query_parameters
    from omnigraph.lang.query.signature import describe_field

    found = query_parameters(text, lambda: graph.catalog(**target), name)
    return [describe_field(item.name, item.type) for item in found]


def parameters_of_stored(server: RemoteGraph, name: str) -> Sequence[FieldDescriptor]:
    """The parameters of a stored query of a server; none where it has no such query."""
    from omnigraph.api.answers import StoredQueryEntry

    entries = map(StoredQueryEntry.from_json, server.queries())
    return next((entry.params for entry in entries if entry.name == name), ())


# ---- Consent to large mutations


#: More nodes and edges than these are changed at a terminal only after a question.
ASK_ABOVE = 1_000


def confirmed(run: Callable[[int | None], MutationResult], *, asks: bool) -> MutationResult:
    """Run a mutation; one that changes much only after a question, where there is a person to ask.

    Raises:
        Exit: the answer was no. Nothing was written.
    """
    from omnigraph.api.results import AFFECTED_RESOURCE

    try:
        return run(ASK_ABOVE if asks else None)
    except ResourceLimitError as refused:
        if refused.resource != AFFECTED_RESOURCE:
            raise
        try:
            goes_on = is_confirmed(f"this changes {refused.actual:,} nodes and edges")
        except KeyboardInterrupt as stop:
            stop.add_note(NOTHING_WRITTEN)
            raise
        if not goes_on:
            print_warning(NOTHING_WRITTEN)
            raise Exit(1) from None
        return run(None)
