"""`omnigraph alias`: a stored read query under a name of one's own."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.commands.query import (
    CsvSafe,
    RowFormatOption,
    check_csv_safe,
    check_format,
    print_rows,
    row_format,
)
from omnigraph.cli.operator_config import config_path, read_operator_config
from omnigraph.cli.options import AsJson, Params, ParamsFile
from omnigraph.cli.resolution import server_scope
from omnigraph.cli.scope import connect
from omnigraph.cli.scoped import scoped
from omnigraph.cli.sources import read_params

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph.cli.operator_config import Alias


@scoped("alias")
def alias(
    name: Annotated[str, typer.Argument(metavar="NAME", help="an alias of your configuration")],
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="values, in the order of the alias: JSON, else text"),
    ] = None,
    params: Params = None,
    params_file: ParamsFile = None,
    format: RowFormatOption = None,
    csv_safe: CsvSafe = False,
    json: AsJson = False,
) -> None:
    """Run the stored read query that an alias of your configuration stands for."""
    check_format(format, json=json)
    config = read_operator_config()
    found = config.aliases.get(name)
    if found is None:
        known = ", ".join(sorted(config.aliases)) or "none"
        raise typer.BadParameter(f"there is no alias `{name}` in {config_path()}: it has {known}")
    chosen = row_format(config.defaults, json=json, format_=format or found.format)
    check_csv_safe(chosen, csv_safe=csv_safe)
    values = alias_params(name, found, args or [], read_params(params, params_file))
    with connect(server_scope(found.server, config, found.graph), config) as graph:
        result = graph.run(found.query, values, expect_mutation=False)
        print_rows(result, config.defaults, chosen, csv_safe=csv_safe)


def alias_params(
    name: str, alias: Alias, args: Sequence[str], given: Mapping[str, object]
) -> dict[str, object]:
    """The parameters of a call: what is given by name goes before arguments, and those before what is fixed.

    Raises:
        typer.BadParameter: there are more arguments than the alias has names for.
    """
    if len(args) > len(alias.args):
        names = ", ".join(alias.args) or "none"
        raise typer.BadParameter(
            f"alias `{name}` takes {len(alias.args)} arguments ({names}), not {len(args)}"
        )
    positional = {key: _value(text) for key, text in zip(alias.args, args, strict=False)}
    return {**alias.params, **positional, **given}


def _value(text: str) -> object:
    try:
        return json_text.loads(text)
    except (ValueError, RecursionError):
        return text
