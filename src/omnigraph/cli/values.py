"""Single values beside each other as text: where they differ is what is shown."""

from __future__ import annotations

import json
from itertools import takewhile
from typing import TYPE_CHECKING

from omnigraph.cli.tables import fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Longest value in a line or a cell that holds several.
VALUE_WIDTH = 32


def value_text(value: object) -> str:
    """A value as JSON spells it: null, "null" and "" are three different things."""
    return json.dumps(value, ensure_ascii=False)


def compared(texts: Sequence[str], width: int = VALUE_WIDTH) -> list[str]:
    """Texts that differ, fitted: long ones begin shortly before the first difference between them."""
    long = [text for text in texts if len(text) > width]
    if len(set(long)) > 1:
        shared = takewhile(lambda letters: len(set(letters)) == 1, zip(*long, strict=False))
        begin = sum(1 for _ in shared) - width // 3
        if begin > 1:
            texts = [f"…{text[begin:]}" if len(text) > width else text for text in texts]
    return [fit(text, width) for text in texts]


def image_values(image: Mapping[str, object]) -> dict[str, str]:
    """What an image of a row holds, by name and as text: the ends of an edge, then the properties."""
    parts = (image.get("endpoints"), image["properties"])
    return {
        name: value_text(value)
        for part in parts
        if isinstance(part, dict)
        for name, value in part.items()
    }
