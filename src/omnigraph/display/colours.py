"""The colours of the explorer page, for drawings: the style sheet of the page says what they are."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

#: Types beyond so many share colours.
TYPE_COLOURS = 10
_DECLARED = re.compile(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
_USED = ("surface", "text", "muted", "line", "line-strong", "accent", "good", "warn", "bad")


class Colour(NamedTuple):
    """A colour on light and on dark ground."""

    light: str
    dark: str


def page_file(name: str) -> str:
    """The text of a file of the explorer page."""
    return files("omnigraph.display").joinpath("page", name).read_text(encoding="utf-8")


@cache
def colours() -> dict[str, Colour]:
    """The colours by name; those of types are `type-0` to `type-9`."""
    found = {name: Colour(light, dark) for name, light, dark in _DECLARED.findall(page_file("style.css"))}
    return {name: found[name] for name in (*_USED, *(f"type-{number}" for number in range(TYPE_COLOURS)))}


@cache
def themes() -> str:
    """CSS that sets the colours as variables of `.og-picture`, dark ones where the system is dark.

    Notebooks have themes of their own, and name them on their body: these go before.
    """

    def variables(dark: bool) -> str:
        return "".join(f"--{name}:{value.dark if dark else value.light};" for name, value in colours().items())

    on_dark = ':root[data-theme="dark"] .og-picture,[data-jp-theme-light="false"] .og-picture,.vscode-dark .og-picture'
    on_light = on_dark.replace('"dark"', '"light"').replace('"false"', '"true"').replace("vscode-dark", "vscode-light")
    return (
        f".og-picture{{{variables(dark=False)}}}"
        f"@media(prefers-color-scheme:dark){{.og-picture{{{variables(dark=True)}}}}}"
        f"{on_dark}{{{variables(dark=True)}}}{on_light}{{{variables(dark=False)}}}"
    )


def coloured(name: str) -> str:
    """The value of a CSS property: the colour of the theme, and the light one where a viewer knows no variables."""
    return f"var(--{name},{colours()[name].light})"
