"""Tables of values: as lines of text, and as HTML for notebooks."""

from __future__ import annotations

import html
import shutil
from collections.abc import Iterator, Mapping, Sequence

from omnigraph.display.text import cells_of, counted, fitted, short_text
from omnigraph.errors.text import one_line
from omnigraph.frozen import frozen

#: Widest cells of a table of text: of few columns, and of many; and what is between two of them.
_WIDEST = 40
_NARROWEST = 12
_GAP = "  "
_ID_CELLS = 26
#: Terminals that do not say how wide they are.
_WIDTH = (100, 24)


@frozen(kw_only=True)
class Column:
    """A column: its name, what kind of values it has, and the values, which are JSON."""

    name: str
    values: Sequence[object]
    kind: str = ""
    is_number: bool = False
    #: Whether values are copied as a whole.
    is_id: bool = False


@frozen(kw_only=True)
class Table:
    """Columns of values under a title, with a sentence about them."""

    columns: Sequence[Column]
    title: str = ""
    note: str = ""

    # ---- as text

    def lines(self, width: int | None = None) -> Iterator[str]:
        """The lines of the table as wide as a terminal; columns that do not fit are named below."""
        width = shutil.get_terminal_size(_WIDTH).columns if width is None else width
        # Many columns are narrower, so that more of them are seen.
        most = max(_NARROWEST, min(_WIDEST, width // max(len(self.columns), 1) - len(_GAP)))
        shown: list[list[str]] = []
        left = width
        for number, column in enumerate(self.columns):
            cells = _text_cells(column, most if number < len(self.columns) - 1 else max(most, min(_WIDEST, left)))
            left -= cells_of(cells[0]) + len(_GAP)
            if left < -len(_GAP) and shown:
                break
            shown.append(cells)
        if self.title:
            yield one_line(self.title)
        yield from (_GAP.join(line).rstrip() for line in zip(*shown, strict=True))
        hidden = [one_line(column.name) for column in self.columns[len(shown) :]]
        if hidden:
            yield f"… {counted(len(hidden), 'more column')}: {fitted(', '.join(hidden), 2 * _WIDEST)}"
        if self.note:
            yield self.note

    # ---- as HTML

    def html(self) -> str:
        """The table as a piece of HTML without scripts; colours follow what is around it."""
        head = "".join(f"<th{_aligned(column)}>{_head(column)}</th>" for column in self.columns)
        rows = zip(*(_html_cells(column) for column in self.columns), strict=True)
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
        title = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return block(f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}")


def _text_cells(column: Column, most: int) -> list[str]:
    """The cells of a column, all of one width: its name, a rule, and the values."""
    # An id is looked at, and copied, as a whole.
    most = max(most, _ID_CELLS) if column.is_id else most
    texts = [fitted(one_line(short_text(value)), most) for value in column.values]
    name = fitted(one_line(column.name), most)
    width = max(map(cells_of, [name, *texts]))

    def padded(text: str) -> str:
        gap = " " * (width - cells_of(text))
        return gap + text if column.is_number else text + gap

    return [padded(name), "-" * width, *map(padded, texts)]


def _head(column: Column) -> str:
    kind = f"<br><small>{html.escape(column.kind)}</small>" if column.kind else ""
    return f"{html.escape(short_text(column.name))}{kind}"


def _html_cells(column: Column) -> Iterator[str]:
    return (_cell(value, _aligned(column)) for value in column.values)


def _cell(value: object, attributes: str = "") -> str:
    return f"<td{attributes}>{'<i>null</i>' if value is None else html.escape(short_text(value))}</td>"


def _aligned(column: Column) -> str:
    return ' class="n"' if column.is_number else ' class="id"' if column.is_id else ""


# ---- pieces of HTML


#: Only what is around it gives colours, so that it is readable on any ground.
_STYLE = """
.og-block{font:13px/1.5 system-ui,sans-serif;overflow-x:auto;max-width:100%}
.og-block table{border-collapse:collapse;margin:4px 0;color:inherit;background:none}
.og-block caption{caption-side:top;text-align:left;font-weight:600;padding:0 0 4px}
.og-block th,.og-block td{text-align:left;vertical-align:top;padding:3px 12px 3px 0;border:0;\
border-bottom:1px solid color-mix(in srgb,currentColor 18%,transparent);background:none;max-width:48em;\
overflow-wrap:break-word;white-space:pre-wrap}
.og-block th{white-space:nowrap;font-weight:600}
.og-block small{font-weight:400;opacity:.65}
.og-block .id{white-space:nowrap;font-variant-numeric:tabular-nums}
.og-block .n{text-align:right;font-variant-numeric:tabular-nums}
.og-block i{opacity:.55}
.og-block p{margin:4px 0;opacity:.75}
.og-block code{font-family:ui-monospace,monospace;font-size:12px}
.og-block pre{margin:4px 0;font:12px/1.5 ui-monospace,monospace;white-space:pre-wrap;background:none;color:inherit}
"""


def block(content: str) -> str:
    """A piece of HTML with the look of all others; `content` is HTML already."""
    return f'<div class="og-block"><style>{_STYLE}</style>{content}</div>'


def facts_html(title: str, facts: Mapping[str, object], note: str = "") -> str:
    """Names and values as two columns."""
    rows = "".join(f"<tr><th>{html.escape(name)}</th>{_cell(value)}</tr>" for name, value in facts.items())
    below = f"<p>{html.escape(note)}</p>" if note else ""
    return block(f"<table><caption>{html.escape(title)}</caption><tbody>{rows}</tbody></table>{below}")


def facts_text(title: str, facts: Mapping[str, object]) -> str:
    """The same as lines of text."""
    width = max(map(len, facts), default=0)
    lines = (f"  {name:<{width}}  {one_line(short_text(value))}" for name, value in facts.items())
    return "\n".join([one_line(title), *lines])
