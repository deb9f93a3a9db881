"""Reports about loads, in terms of whoever sent the records."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.errors import (
    InputFileError,
    LoadKeyConflictError,
    LoadRejectedError,
    OmniError,
)


def named(
    error: LoadRejectedError | LoadKeyConflictError | InputFileError, path: str, name: str
) -> OmniError:
    """The same failure about a source of another name."""
    if isinstance(error, InputFileError):
        return InputFileError(name, error.reason.replace(path, name))
    report = replace(
        error.report,
        examples=tuple(
            replace(
                item,
                source=item.source.replace(path, name),
                message=item.message.replace(path, name),
            )
            for item in error.report.examples
        ),
    )
    if isinstance(error, LoadRejectedError):
        return LoadRejectedError(report)
    return LoadKeyConflictError(error.entity_kind, error.type_name, error.entity_id or "", report)
