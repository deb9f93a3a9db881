"""Records of a file and their texts: pure functions over one record (spec: search §7)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph.pipeline.embedding.specs import Selector


def text_of(type_name: str, data: Mapping[str, Any], fields: Sequence[str]) -> str:
    r"""The text that a record is embedded by: its type, then one line per field that has a value.

    >>> text_of("Note", {"title": " Graphs ", "tags": ["a", "b"], "body": None}, ["title", "body", "tags"])
    'type: Note\ntitle: Graphs\ntags: a, b'
    """
    lines = [f"type: {type_name}"]
    for name in fields:
        if value := value_text(data.get(name)):
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def value_text(value: object) -> str:
    """A value as one text: strings trimmed, lists joined, null empty, everything else as JSON spells it."""
    match value:
        case None:
            return ""
        case str():
            return value.strip()
        case list():
            return ", ".join(text for item in value if (text := value_text(item)))
        case _:
            return json.dumps(value, ensure_ascii=False)


def is_missing(vector: object) -> bool:
    """Whether a field counts as having no vector: absent, null or an empty list."""
    return vector is None or vector == []


def is_selected(type_name: str, data: Mapping[str, Any], selectors: Sequence[Selector]) -> bool:
    """Whether any selector matches; none at all select everything. A list matches by any of its items."""
    return not selectors or any(_matches(item, type_name, data) for item in selectors)


def _matches(selector: Selector, type_name: str, data: Mapping[str, Any]) -> bool:
    if selector.type not in (None, type_name) or selector.field not in data:
        return False
    value = data[selector.field]
    items = value if isinstance(value, list) else [value]
    return any(_spelling(item) == selector.value for item in items)


def _spelling(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
