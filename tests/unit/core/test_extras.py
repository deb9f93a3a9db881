"""Packages of extras: what is missing is said in one line, with the extra that installs it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from omnigraph.core.extras import EXTRAS, need
from omnigraph.errors import MissingPackageError

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _packages(extra: str) -> set[str]:
    names = (re.match(r"[\w.-]+", item) for item in PROJECT["optional-dependencies"][extra])
    return {name[0].lower().replace("-", "_") for name in names if name is not None}


def test_each_package_is_in_the_extra_that_its_message_names() -> None:
    assert {package for package, extra in EXTRAS.items() if package not in _packages(extra)} == set()


def test_what_is_missing_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if it were not installed.
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(MissingPackageError) as raised:
        need("polars", "`to_polars`")
    told = "`to_polars` needs polars, which is not installed: run `pip install 'omnigraph[polars]'`"
    assert str(raised.value) == raised.value.message == told
    assert isinstance(raised.value, ImportError)
