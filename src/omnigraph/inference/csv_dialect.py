"""The dialect of a CSV file, from its first lines: delimiter, names of columns, line breaks in values."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from omnigraph.frozen import frozen

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: In the order of preference.
_DELIMITERS = (",", "\t", ";", "|")
#: How many lines are looked at.
_LINES = 400
_NUMBER = re.compile(r"[-+]?[0-9][0-9.,: /-]*")
_NAME = re.compile(r"[^\W\d][\w .()#%/&+:-]{0,63}")


@frozen(kw_only=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: str
    #: The names of its columns; made up where the first line does not name them.
    names: tuple[str, ...]
    has_header: bool = True
    #: Whether values hold line breaks.
    is_multiline: bool = False

    def entry(self, *, ending: str) -> dict[str, object]:
        """What a mapping has to say about a file with this ending."""
        found: dict[str, object] = {}
        if ending not in ("csv", "tsv"):
            found["format"] = "csv"
        if self.delimiter != ("\t" if ending == "tsv" else ","):
            found["delimiter"] = self.delimiter
        if not self.has_header:
            found["header"] = list(self.names)
        if self.is_multiline:
            found["multiline"] = True
        return found


def sniff(begun: bytes, *, ending: str, is_whole: bool) -> Dialect | None:
    """The dialect of a file that begins so; None where it is not a table of at least two columns.

    A file that says by its ending that it is CSV may have one column.
    """
    text = begun.removeprefix(BYTE_ORDER_MARK).decode("utf-8", errors="replace")
    if not is_whole:
        text = text[: text.rfind("\n") + 1]
    text = text.replace("\r\n", "\n")
    is_named = ending in ("csv", "tsv")
    found = max((_Parsed(text, sign) for sign in _DELIMITERS), key=lambda item: item.score)
    if found.score <= 0:
        if not is_named:
            return None
        found = _Parsed(text, "\t" if ending == "tsv" else ",")
    if not found.rows or (not is_named and found.regular < _REGULAR):
        return None
    has_header = _has_header(found.rows, found.width)
    names = found.rows[0] if has_header else [f"column_{number + 1}" for number in range(found.width)]
    return Dialect(
        delimiter=found.delimiter, names=tuple(names), has_header=has_header, is_multiline=_has_line_breaks(text, found)
    )


#: The share of lines with the same number of values that makes a table of a file whose ending does not say so.
_REGULAR = 0.9


class _Parsed:
    """The first lines of a file, read with one delimiter."""

    def __init__(self, text: str, delimiter: str) -> None:
        self.delimiter = delimiter
        self.rows = list(_rows(text, delimiter))
        widths = Counter(len(row) for row in self.rows)
        #: The usual number of values, and the share of lines that have it; the first line counts where few have it.
        self.width = widths.most_common(1)[0][0] if widths else 0
        self.regular = widths[self.width] / len(self.rows) if self.rows else 0.0

    @property
    def score(self) -> float:
        """How well the delimiter fits: regular lines first, then the number of values."""
        return 0.0 if self.width < 2 else self.regular + min(self.width, 50) / 1000


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=False)
    found = 0
    try:
        for row in reader:
            if row:
                yield row
                found += 1
            if found == _LINES:
                return
    except csv.Error:
        return


def _has_line_breaks(text: str, found: _Parsed) -> bool:
    """Whether values go over several lines: only so the lines have the same number of values."""
    lines = [line for line in text.split("\n")[: len(found.rows)] if line.strip()]
    if not any(line.count('"') % 2 for line in lines):
        return False
    broken = [row for row in found.rows if any("\n" in value for value in row)]
    return bool(broken) and all(len(row) == found.width for row in broken)


def _has_header(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether the first line names the columns."""
    first, rest = rows[0], [row for row in rows[1:] if len(row) == width]
    if len(first) != width or len({value.strip() for value in first}) < len(first):
        # Names of columns differ; the row of names that pandas writes may begin with an empty one.
        return _are_names([value for value in first if value.strip()]) and len(first) == width
    if any(_NUMBER.fullmatch(value.strip()) for value in first):
        return False
    if not _are_names([value for value in first if value.strip()]):
        return False
    votes = 0
    for place, name in enumerate(first):
        values = [row[place].strip() for row in rest if row[place].strip()]
        if not values:
            continue
        if sum(bool(_NUMBER.fullmatch(value)) for value in values) * 10 >= len(values) * 9:
            votes += 2
        elif name.strip() in values:
            votes -= 2
        elif _is_like(name.strip(), values):
            votes -= 1
        else:
            votes += 1
    return votes >= 0


def _are_names(values: Sequence[str]) -> bool:
    return bool(values) and all(_NAME.fullmatch(value.strip()) for value in values)


def _is_like(name: str, values: Sequence[str]) -> bool:
    """Whether a text has the form that all values have: capital letters and digits of one length, as codes have."""
    shape = _shape(name)
    return (
        len(values) > 1
        and shape == _shape(values[0])
        and all(_shape(value) == shape for value in values)
        and shape != ""
    )


def _shape(text: str) -> str:
    """The form of a code; none for words."""
    if len(text) > 12 or not re.search(r"[A-Z0-9]", text) or re.search(r"[^A-Z0-9-]", text):
        return ""
    return re.sub(r"[A-Z]", "A", re.sub(r"[0-9]", "9", text))
