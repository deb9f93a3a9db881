"""The engine of bulk work: this process or Spark, by what the caller asks for and by how much there is to do."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

from omnigraph.codec import Document, Text
from omnigraph.core.env_settings import WholeNumber
from omnigraph.core.extras import is_installed
from omnigraph.errors import BadRequestError
from omnigraph.errors.text import size_text
from omnigraph.frozen import frozen

AUTO_LOCAL_MAX_BYTES = WholeNumber(
    "OMNIGRAPH_AUTO_LOCAL_MAX_BYTES",
    32 * 1024 * 1024,
    "The largest input that the engine `auto` loads or exports in process; Spark takes larger ones.",
)


class Engine(StrEnum):
    """Where bulk work is done. `auto` is one of the others, chosen by size."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@frozen(kw_only=True)
class ChosenEngine(Document):
    """Where bulk work is done, and why.

    >>> print(ChosenEngine(name=Engine.LOCAL, reason="2 MiB of input, Spark starts above 32 MiB"))
    in process: 2 MiB of input, Spark starts above 32 MiB
    """

    name: Annotated[Engine, Text("`local` or `spark`")]
    reason: Annotated[str, Text("why it is this one")]

    @property
    def is_local(self) -> bool:
        """Whether the work stays in this process."""
        return self.name is Engine.LOCAL

    def __str__(self) -> str:
        return f"{'in process' if self.is_local else 'on Spark'}: {self.reason}"


@frozen(kw_only=True)
class Amount:
    """How much work there is, and how much of it a process does by itself."""

    size: int
    most_in_process: int
    #: Shows a size of this kind.
    show: Callable[[int], str]
    #: The size as a person reads it; without one the shown size.
    described: str = ""

    @property
    def is_small(self) -> bool:
        """Whether a process does it by itself."""
        return self.size <= self.most_in_process

    def __str__(self) -> str:
        return self.described or self.show(self.size)


def bytes_of(what: str, size: int, most: int, *, stored: int | None = None) -> Amount:
    """An amount of bytes; `stored` is what they take where they are packed.

    >>> str(bytes_of("input", 6 * 1024, 8 * 1024, stored=1024))
    '1 KiB of input, about 6 KiB unpacked'
    """
    described = f"{size_text(size if stored is None else stored)} of {what}"
    if stored not in (None, size):
        described += f", about {size_text(size)} unpacked"
    return Amount(size=size, most_in_process=most, show=size_text, described=described)


def rows_of(rows: int, most: int) -> Amount:
    """An amount of rows."""
    return Amount(size=rows, most_in_process=most, show="{:,} rows".format)


def check_engine(engine: str) -> None:
    """Refuse an engine that does not exist.

    Raises:
        BadRequestError: there is none of that name.
    """
    if engine not in list(Engine):
        raise BadRequestError(f"there is no engine {engine!r}: give {', '.join(Engine)}")


def choose_engine(asked: str, amount: Amount, *, only_spark: str = "") -> ChosenEngine:
    """The engine for some work; `only_spark` says why a process could not do it, whatever its amount.

    Raises:
        BadRequestError: there is no such engine.
    """
    check_engine(asked)
    if asked != Engine.AUTO:
        return ChosenEngine(name=Engine(asked), reason="as asked")
    if only_spark:
        return ChosenEngine(name=Engine.SPARK, reason=only_spark)
    if not amount.is_small and not is_installed("pyspark"):
        return ChosenEngine(name=Engine.LOCAL, reason=f"{amount}, and Spark is not installed")
    name = Engine.LOCAL if amount.is_small else Engine.SPARK
    return ChosenEngine(name=name, reason=f"{amount}, Spark starts above {amount.show(amount.most_in_process)}")
