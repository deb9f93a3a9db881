from __future__ import annotations

import doctest
from types import ModuleType

import pytest

import omnigraph.core.ids
import omnigraph.core.source
import omnigraph.lang.schema.compiler


@pytest.mark.parametrize(
    "module",
    [omnigraph.core.ids, omnigraph.lang.schema.compiler, omnigraph.core.source],
    ids=lambda module: module.__name__,
)
def test_the_examples_of_a_docstring_are_true(module: ModuleType) -> None:
    result = doctest.testmod(module)

    assert result.attempted > 0
    assert result.failed == 0
