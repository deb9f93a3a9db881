"""YAML files that people write: safe, and without repeated keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from omnigraph.errors import BadRequestError, InputFileError

if TYPE_CHECKING:
    from pathlib import Path


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; JSON is YAML too.

    Raises:
        InputFileError: the file cannot be read.
        BadRequestError: it is no YAML, or repeats a key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputFileError(str(path), reason or str(error)) from error
    try:
        # The loader is the safe one, made strict: a repeated key would silently hide what it held first.
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise BadRequestError(f"{path} is no YAML: {' '.join(str(error).split())}") from error


class _StrictLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """YAML without repeated keys."""


def _strict_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    pairs = loader.construct_pairs(node, deep=True)
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise yaml.constructor.ConstructorError(
            None, None, f"the key {twice!r} is given twice", node.start_mark
        )
    return dict(pairs)


_StrictLoader.add_constructor("tag:yaml.org,2002:map", _strict_mapping)
