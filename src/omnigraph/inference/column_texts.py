"""The texts of a column: how often each one occurs, which of them stand for null, and what they are said to be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.types import BaseType, Scalar, ScalarType
from omnigraph.frozen import frozen
from omnigraph.inference.names import words_of
from omnigraph.pipeline.violations import shown

STRING = ScalarType(Scalar.STRING)


@frozen(kw_only=True)
class Notation:
    """A type, and how texts are read as its values."""

    base: BaseType
    #: Keys of a value in `properties` of a mapping, without `column`.
    steps: Mapping[str, object] = field(default_factory=dict)
    #: What was seen, as a comment says it.
    seen: str
    #: The order of day and month that this notation takes for granted; None where the texts tell it.
    order: str | None = None
    #: The least and the greatest of numbers.
    bounds: tuple[float, float] | None = None


@frozen(kw_only=True)
class Texts:
    """The distinct texts of a column, without white space around them, and how often each one occurs."""

    column: str
    distinct: Array
    counts: Array
    #: Whether the source has no types, as CSV: there plain numbers need no step.
    is_text: bool
    #: Whether the source says that these are texts, as Parquet does: their digits are not numbers.
    is_declared: bool = False
    #: `day` or `month`: what comes first in dates of this input where a column does not tell it.
    order: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the name of the column."""
        return words_of(self.column)

    @property
    def total(self) -> int:
        """How many values are not null."""
        return int(pc.sum(self.counts).as_py() or 0)

    def all(self) -> list[str]:
        """The texts as a list."""
        return plain_list(self.distinct)

    def without(self, texts: Sequence[str]) -> Texts:
        """The same without some texts."""
        if not texts:
            return self
        keep = pc.invert(pc.is_in(self.distinct, pa.array(texts, pa.utf8())))
        return Texts(
            column=self.column,
            distinct=self.distinct.filter(keep),
            counts=self.counts.filter(keep),
            is_text=self.is_text,
            is_declared=self.is_declared,
            order=self.order,
        )

    def all_match(self, pattern: str) -> bool:
        """Whether every text matches a pattern of RE2."""
        return pc.all(pc.match_substring_regex(self.distinct, pattern), min_count=0).as_py() is not False

    def any_match(self, pattern: str) -> bool:
        """Whether some text matches a pattern of RE2."""
        return pc.any(pc.match_substring_regex(self.distinct, pattern), min_count=0).as_py() is True

    def first_match(self, pattern: str) -> str:
        """The first text that matches, as a comment shows it."""
        found = self.distinct.filter(pc.match_substring_regex(self.distinct, pattern))
        return quoted(plain_list(found)[0])


def plain_list(texts: Array) -> list[str]:
    """An array of texts as a list."""
    return [str(text) for text in texts.to_pylist()]


def quoted(text: str) -> str:
    """A text as a comment shows it: on one line, and not long."""
    short = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    return json.dumps(shown(short), ensure_ascii=False)


_SHOWN = 40

# ---- Texts for null


#: Nothing else than null in any column.
_NULLS = ("", "\\N", "NULL", "Null", "null", "N/A", "n/a", "#N/A", "<NA>", "<null>", "(null)")
#: Null among numbers, dates and truth values; among texts they may be names or words.
_NULLS_OF_VALUES = (
    *("na", "nan", "none", "nil", "-", "--", "---", "?", "??", ".", "..", "...", "*", "n.a.", "n.a", "n/d"),
    *("unknown", "missing", "undefined", "tbd", "tba", "not available", "not applicable", "no data", "empty"),
    *("#value!", "#div/0!"),
)
_DASHES = ("-", "--", "---", "–", "—")


def null_texts(texts: Texts) -> list[str]:
    """The texts of a column that stand for null wherever they are."""
    found = plain_list(texts.distinct.filter(pc.is_in(texts.distinct, pa.array(_NULLS))))
    rest = texts.without([*found, *_DASHES])
    # A dash among words and codes says that there is nothing; among signs it is one.
    if len(rest.distinct) and rest.all_match(r"[\pL\pN]"):
        found += plain_list(texts.distinct.filter(pc.is_in(texts.distinct, pa.array(_DASHES))))
    return sorted(found)


def null_texts_of_values(texts: Texts) -> list[str]:
    """Those that stand for null among values that are not texts."""
    words = pc.utf8_lower(texts.distinct)
    weak = plain_list(texts.distinct.filter(pc.is_in(words, pa.array(_NULLS_OF_VALUES))))
    return sorted({*null_texts(texts), *weak})
