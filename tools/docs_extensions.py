"""What the documentation makes of sources beyond what its builder knows."""

from __future__ import annotations

import re
from typing import Any

from griffe import Class, Expr, ExprCall, ExprName, Extension, Object

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).*)*", re.MULTILINE)


class DoctestBlocks(Extension):
    """Fences every run of lines that begins with `>>>`, where Markdown would make quotes of them."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)


class FrozenClasses(Extension):
    """Shows `frozen` classes with their parameters, as it does those of `dataclasses`."""

    def on_class_instance(self, *, cls: Class, **_: Any) -> None:
        """Change the decorators of one class."""
        for decorator in cls.decorators:
            found = decorator.value
            if isinstance(found, Expr) and found.canonical_path == "omnigraph.frozen.frozen":
                known = ExprName("dataclasses.dataclass")
                decorator.value = ExprCall(known, found.arguments) if isinstance(found, ExprCall) else known
                cls.labels.add("dataclass")
