"""The batches of a result, made once and read by several readers: some look ahead, one takes them, others keep them."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.core.arrow import Batch

#: Rows that are kept for readers that come later; a result with more of them streams once.
KEPT_BYTES = 64 * 1024 * 1024


class ReadAhead:
    """Batches from an iterator. Not thread-safe; readers may be in different threads, one after the other.

    As long as nothing took them, all batches so far are kept here, and every reader begins with the first one.
    """

    def __init__(self, batches: Iterator[Batch], *, kept_bytes: int = KEPT_BYTES) -> None:
        self._source: Iterator[Batch] | None = batches
        self._ahead: list[Batch] = []
        #: The size of the batches so far, without those at the end that were not asked for their size yet.
        self._measured_bytes = 0
        self._unmeasured: list[Batch] = []
        self._kept_bytes = kept_bytes
        self._is_taken = False
        self._failure: Exception | None = None

    def pull(self) -> bool:
        """Make one more batch; False behind the last one. What failed once fails again."""
        if self._failure is not None:
            raise self._failure
        if self._source is None:
            return False
        try:
            batch = next(self._source)
        except StopIteration:
            self._source = None
            return False
        except Exception as failure:
            self._failure = failure
            raise
        self._ahead.append(batch)
        if not self._is_taken:
            self._unmeasured.append(batch)
        return True

    @property
    def _ahead_bytes(self) -> int:
        """The size of the batches so far: asking a batch takes as long as a small query, and one is hardly asked."""
        if self._unmeasured:
            self._measured_bytes += sum(batch.nbytes for batch in self._unmeasured)
            self._unmeasured.clear()
        return self._measured_bytes

    def peek(self, rows: int) -> tuple[list[Batch], bool] | None:
        """The batches with the first rows, so many if there are, and whether these are all; None once they are taken.

        Nothing is taken: readers that come later get these batches too.
        """
        if self._is_taken:
            return None
        while sum(batch.num_rows for batch in self._ahead) <= rows and self._ahead_bytes <= self._kept_bytes:
            if not self.pull():
                return list(self._ahead), True
        return list(self._ahead), False

    def take(self) -> Iterator[Batch]:
        """Every batch. They are gone then, unless all of them are here already."""
        if self._source is None and self._failure is None and not self._is_taken:
            yield from self._ahead
            return
        self._begin_taking()
        try:
            while self._ahead or self.pull():
                yield self._ahead.pop(0)
        finally:
            self._close()

    def replay(self) -> Iterator[Batch]:
        """Every batch, also for further readers, as long as few bytes are kept for that."""
        place = 0
        while True:
            if self._is_taken:
                self._begin_taking()
            if place == len(self._ahead) and not self.pull():
                return
            if self._ahead_bytes > self._kept_bytes and self._source is not None:
                del self._ahead[:place]
                yield from self.take()
                return
            yield self._ahead[place]
            place += 1

    def all(self) -> list[Batch]:
        """Every batch; they stay here."""
        if self._is_taken:
            self._begin_taking()
        while self.pull():
            pass
        return self._ahead

    def _begin_taking(self) -> None:
        if self._is_taken:
            raise RuntimeError("the rows were streamed already: call to_arrow() before iterating")
        self._is_taken = True
        self._unmeasured.clear()

    def _close(self) -> None:
        source, self._source = self._source, None
        self._ahead.clear()
        self._unmeasured.clear()
        close = getattr(source, "close", None)
        if close is not None:
            close()
