"""What a tool is: its description for the agent, and the request that a call of it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from mcp_types import Tool, ToolAnnotations

from omnigraph.errors import BadRequestError
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnigraph.policy.rules import Action

    Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerRequest:
    """A request to a route of this server. `path` is below the graph unless it is `is_flat`."""

    method: str
    path: str
    query: str = ""
    #: The JSON body; None: there is none.
    body: Mapping[str, Any] | None = None
    is_flat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTool:
    """One tool. Whoever may do none of `needs` on any branch does not get to know that it exists."""

    name: str
    description: str
    input_schema: dict[str, Any]
    request: Callable[[Arguments], InnerRequest]
    needs: Action | None
    is_read: bool = True
    is_destructive: bool = False

    def request_of(self, arguments: Arguments) -> InnerRequest:
        """The request that a call stands for.

        Raises:
            BadRequestError: the tool has no such argument.
        """
        known = self.input_schema["properties"]
        for name in arguments:
            if name not in known:
                hint = did_you_mean(name, known)
                raise BadRequestError(
                    f"`{self.name}` has no argument `{name}`" + (f": {hint}" if hint else "")
                )
        return self.request(arguments)

    def definition(self) -> Tool:
        """The tool as it is listed."""
        return Tool(
            name=self.name,
            description=self.description,
            input_schema=self.input_schema,
            annotations=ToolAnnotations(
                read_only_hint=self.is_read,
                destructive_hint=self.is_destructive,
                open_world_hint=False,
            ),
        )


def query_string(arguments: Arguments) -> str:
    """Arguments as the query string of a route; lists are repeated, nulls left out."""
    pairs: list[tuple[str, str]] = []
    for name, value in arguments.items():
        items = value if isinstance(value, list) else [value]
        pairs += [(name, _text(item)) for item in items if item is not None]
    return urlencode(pairs)


def segment(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)
