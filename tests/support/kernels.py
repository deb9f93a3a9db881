"""The two forms of the loops over neighbours: with numpy, and as machine code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

MODES = ("numpy", "compiled")


@contextmanager
def kernels(mode: str) -> Iterator[None]:
    """One form is taken for everything."""
    with mock.patch.dict(os.environ, {"OMNIGRAPH_KERNELS": mode}):
        yield
