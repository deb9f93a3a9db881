"""JSON objects of a text one after the other, whatever stands between them: how old files may be written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from omnigraph.pipeline.inputs import open_text
from omnigraph.pipeline.records import MAX_LINE_BYTES, BadRecordError, Complaint

if TYPE_CHECKING:
    import json
    from collections.abc import Iterator

    from omnigraph.pipeline.inputs import InputFile

_BLOCK_BYTES = 4 * 1024 * 1024
_BETWEEN = re.compile(r"(?:[\s\ufeff]+|//[^\n]*\n)*")
_COMMENT_AT_END = re.compile(r"//[^\n]*\Z")


def read_objects(file: InputFile, decoder: json.JSONDecoder) -> Iterator[object]:
    """The JSON values of a file; the last one may be the error that ends the reading.

    Behind a broken value nothing can be told apart any more, so the reading ends there.
    """
    text, position = "", 0
    pending = b""
    with open_text(file) as stream:
        is_done = False
        while True:
            position = _BETWEEN.match(text, position).end()  # type: ignore[union-attr]  # matches anything
            if position < len(text) and not _COMMENT_AT_END.match(text, position):
                try:
                    body, position = decoder.raw_decode(text, position)
                except RecursionError:
                    yield _broken("the values are nested too deeply")
                    return
                except ValueError as error:
                    if is_done or len(text) - position > MAX_LINE_BYTES:
                        yield _broken(str(error))
                        return
                else:
                    yield body
                    continue
            elif is_done:
                return
            more = stream.read(_BLOCK_BYTES)
            is_done = not more
            pending += more
            try:
                text, position, pending = text[position:] + pending.decode(), 0, b""
            except UnicodeDecodeError as error:
                if is_done or error.start < len(pending) - 4:
                    yield _broken(str(error))
                    return


def _broken(message: str) -> BadRecordError:
    return BadRecordError(Complaint(rule="invalid JSON", message=message))
