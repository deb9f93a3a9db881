from __future__ import annotations

import doctest
from typing import TYPE_CHECKING

import pytest

import omnigraph.core.ids
import omnigraph.core.source
import omnigraph.lang.schema.compiler

if TYPE_CHECKING:
    from types import ModuleType


@pytest.mark.parametrize(
    "module",
    [omnigraph.core.ids, omnigraph.lang.schema.compiler, omnigraph.core.source],
    ids=lambda module: module.__name__,
)
def test_the_examples_of_a_docstring_are_true(module: ModuleType) -> None:
    result = doctest.testmod(module)

    assert result.attempted > 0
    assert result.failed == 0
