"""Keys that tasks wrote into answer files: as many as there are, without one process that holds them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import pyarrow as _arrow

from omnigraph.storage.answers import attempt_name, read_answer, write_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph.pipeline.workers import Message
    from omnigraph.storage.answers import AnswerFolder

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow

_SCHEMA = pa.schema([pa.field("key", pa.utf8())])


@dataclass(frozen=True, slots=True)
class KeyFiles(Sequence[str]):
    """Keys in files of an operation. Read as a sequence they stream by; picklable, for tasks that read a file each."""

    folder: AnswerFolder
    names: tuple[str, ...]
    total: int

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[str]:
        for name in self.names:
            for batch in self.batches(name):
                yield from batch.column(0).to_pylist()

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        return list(self)[place]

    def batches(self, name: str) -> Iterator[Any]:
        """The keys of one file, as batches with a column `key`."""
        yield from read_answer(self.folder, name)


def write_keys(folder: AnswerFolder, part: int, batches: Iterable[Any]) -> Message:
    """Write the keys of batches with one column; for `key_files`."""
    name = attempt_name("keys", part)
    rows = (pa.RecordBatch.from_arrays([batch.column(0)], schema=_SCHEMA) for batch in batches)
    answer = write_answer(folder, name, _SCHEMA, rows)
    return {"name": answer.name, "rows": answer.rows}


def key_files(folder: AnswerFolder, answers: Iterable[Message]) -> KeyFiles:
    """The keys that tasks wrote."""
    found = [answer for answer in answers if answer["rows"]]
    names = tuple(str(answer["name"]) for answer in found)
    return KeyFiles(folder, names, sum(int(answer["rows"]) for answer in found))
