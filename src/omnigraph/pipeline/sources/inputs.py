"""Input files by path or pattern, and whole lines of a range."""

from __future__ import annotations

import codecs
import fnmatch
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Literal, NoReturn, Protocol
from urllib.parse import unquote

import pyarrow
from pyarrow import fs

from omnigraph.core.env_settings import WholeNumber
from omnigraph.errors import BadRequestError, InputFileError, ResourceLimitError
from omnigraph.errors.text import size_text
from omnigraph.frozen import frozen
from omnigraph.pipeline.sources.records import MAX_LINE_BYTES, not_utf8
from omnigraph.storage.store_variables import store_endpoint, store_region

# ---- Finding and opening input files
#
# A file may be much smaller than what it holds. How much more a load takes from it is bounded (`UnpackLimits`): for
# packed texts here, for columnar files where their batches are read.


_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_PATTERN = re.compile(r"[*?\[]")
#: How names begin that are not part of the data: `_SUCCESS`, `_temporary`, `.part-0.crc`.
_HIDDEN = (".", "_")
_ANY_FOLDERS = "**"
#: What Spark and Hive write for null in the name of a folder.
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
#: Folders in which tables keep their log.
_TABLE_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
_COMPRESSIONS: dict[str, Literal["gzip", "zstd", "bz2"]] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
#: Endings of files that pack their columns.
_COLUMNAR = frozenset({"parquet", "orc"})
#: How many times larger than a packed file its content usually is.
_LIKELY_RATIO = 5


UNPACK_MAX_RATIO = WholeNumber(
    "OMNIGRAPH_UNPACK_MAX_RATIO",
    100,
    "How many times larger than a packed or columnar file its content may be.",
    lowest=1,
)
UNPACK_ALLOWED_BYTES = WholeNumber(
    "OMNIGRAPH_UNPACK_ALLOWED_BYTES",
    256 * 1024 * 1024,
    "Content up to this size is read whatever the size of its file.",
)


@frozen(kw_only=True)
class UnpackLimits:
    """Size limits of packed files. They travel with the file, so that executors need no settings."""

    max_ratio: int = field(default_factory=UNPACK_MAX_RATIO.read)
    allowed_bytes: int = field(default_factory=UNPACK_ALLOWED_BYTES.read)


@frozen(kw_only=True)
class InputFile:
    """One file of the input: as it is shown, and as it is opened."""

    path: str
    size: int
    limits: UnpackLimits = field(default_factory=UnpackLimits)
    #: Columns whose values are in the names of its folders, as in `country=DE/part-0.parquet`.
    partitions: tuple[tuple[str, str | None], ...] = ()
    #: When it was changed last, where that is known.
    modified_ns: int | None = None

    def check_content(self, content_bytes: int) -> None:
        """Refuse a file that holds far more than its size makes likely, as read so far or by its own account.

        Raises:
            ResourceLimitError: the content is above the limit.
        """
        ratio, allowed = self.limits.max_ratio, self.limits.allowed_bytes
        limit = max(ratio * self.size, allowed)
        if content_bytes > limit:
            raise ResourceLimitError(
                "unpacked_bytes",
                limit,
                content_bytes,
                f"{self.path} ({size_text(self.size)}) unpacks to more than {ratio} times its size; if it is meant to, "
                f"raise {UNPACK_MAX_RATIO} or {UNPACK_ALLOWED_BYTES}",
            )

    @property
    def likely_bytes(self) -> int:
        """About how large the content is, as far as the name tells; nothing is read."""
        is_packed = self.compression is not None or self.ending in _COLUMNAR
        return self.size * _LIKELY_RATIO if is_packed else self.size

    @property
    def compression(self) -> Literal["gzip", "zstd", "bz2"] | None:
        """The compression, by the file extension."""
        return _COMPRESSIONS.get(PurePosixPath(self.path).suffix)

    @property
    def ending(self) -> str:
        """The ending that tells the format, without the one of a compression."""
        name = PurePosixPath(self.path)
        if name.suffix in _COMPRESSIONS:
            name = PurePosixPath(name.stem)
        return name.suffix.lstrip(".").lower()


FRAME_PER_TYPE = 'give a frame per type, as in frames={"Paper": papers}'


def check_one_input(source: object, mapping: object, frames: object) -> None:
    """Make sure that a load has one input.

    Raises:
        BadRequestError: it has none, or graph records beside something else, or frames in their place.
    """
    if not isinstance(source, str | os.PathLike | None):
        raise BadRequestError(f"a {type(source).__name__} is no path: {FRAME_PER_TYPE}")
    if (source is None) == (mapping is None and frames is None):
        raise BadRequestError("give one input: files of graph records, a mapping, frames, or frames with a mapping")


def is_remote(source: str) -> bool:
    """Whether a path names something that is not on this machine."""
    return bool(_SCHEME.match(source)) and not source.startswith("file://")


def read_text(source: str) -> str:
    """The whole text of a small file.

    Raises:
        InputFileError: it cannot be read.
    """
    (file,) = find_files(source)
    with readable(file), open_text(file) as stream:
        try:
            return stream.read(file.size).decode()
        except UnicodeDecodeError as error:
            raise InputFileError(source, "it is not UTF-8") from error


def find_files(source: str, endings: tuple[str, ...] | None = None) -> list[InputFile]:
    """The files that a path, a directory or a pattern names, in the order of their paths.

    A directory stands for all files below it with one of the endings; hidden files and folders and those that begin
    with `_` are passed over, as Spark does. A file that is named itself may have any ending. In a pattern `*`, `?` and
    `[…]` stay within one name, and `**` stands for any number of folders, also none; names that begin with `.` or `_`
    are taken only where the pattern begins with that character too.

    Raises:
        InputFileError: there is none, or they belong to a table whose own log says which of its files count.
    """
    system, path = _system(source)
    prefix = source.removesuffix(path) if is_remote(source) else ""
    base: str | None = None
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.Directory:
            base = path
            found = _below(system, source, path, endings)
        elif info.type != fs.FileType.NotFound:
            found = [info]
        elif _PATTERN.search(path):
            base = _fixed_folder(path)
            found = _matching(system, source, path)
        else:
            raise InputFileError(source, "there is no such file or directory")
    except (OSError, ValueError) as error:
        raise InputFileError(source, _reason(error)) from error
    if not found:
        wanted = "" if endings is None else f" ({', '.join(f'.{item}' for item in endings)})"
        raise InputFileError(source, f"no file{wanted} is found there")
    files = [
        InputFile(
            path=f"{prefix}{info.path}",
            size=info.size or 0,
            partitions=() if base is None else _partitions(info.path, base),
            modified_ns=info.mtime_ns,
        )
        for info in found
    ]
    return sorted(files, key=lambda file: file.path)


def _partitions(path: str, base: str) -> tuple[tuple[str, str | None], ...]:
    """The columns that folders between a source and its file stand for.

    Raises:
        InputFileError: two folders give the same column.
    """
    found: dict[str, str | None] = {}
    for name in PurePosixPath(path).parts[len(PurePosixPath(base).parts) : -1]:
        column, sign, value = name.partition("=")
        if not column or not sign:
            continue
        column = unquote(column)
        if column in found:
            raise InputFileError(path, f"two of its folders give the column `{column}`: rename one")
        found[column] = None if value == _NULL_PARTITION else unquote(value)
    return tuple(found.items())


def _below(system: fs.FileSystem, source: str, path: str, endings: tuple[str, ...] | None) -> list[fs.FileInfo]:
    infos = system.get_file_info(fs.FileSelector(path, recursive=True))
    root = len(PurePosixPath(path).parts)
    files = []
    for info in infos:
        parts = PurePosixPath(info.path).parts[root:]
        if info.type != fs.FileType.File or any(part.startswith(_HIDDEN) for part in parts):
            continue
        if endings is None or InputFile(path=info.path, size=0).ending in endings:
            files.append(info)
    _refuse_table_folders(source, infos, files)
    return files


def _refuse_table_folders(source: str, infos: list[fs.FileInfo], files: list[fs.FileInfo]) -> None:
    """Refuse data files of tables: those that were deleted or replaced may still be there, and only a log knows.

    Raises:
        InputFileError: a file is in the folder of such a table.
    """
    tables = {root: kind for info in infos for root, kind in _table_folders(info.path)}
    for info in files if tables else ():
        for folder in PurePosixPath(info.path).parents:
            if folder in tables:
                raise InputFileError(
                    source,
                    f"{folder} is a table of {tables[folder]}, whose folder also holds files that no longer belong to "
                    "it: give its name in `table:`, or a frame of Spark",
                )


def _table_folders(path: str) -> Iterator[tuple[PurePosixPath, str]]:
    """The folder of a table, where a path is one of its log."""
    found = PurePosixPath(path)
    for folder in (found, *found.parents):
        if folder.name in _TABLE_LOGS:
            yield folder.parent, _TABLE_LOGS[folder.name]
    if found.name.endswith(".metadata.json") and found.parent.name == "metadata":
        yield found.parent.parent, "Iceberg"


def _fixed_folder(pattern: str) -> str:
    """The folder in which everything is that a pattern may stand for."""
    fixed = pattern[: _PATTERN.search(pattern).start()]  # type: ignore[union-attr]  # there is a match: it is a pattern
    return fixed.rpartition("/")[0] or ("/" if pattern.startswith("/") else ".")


def _matching(system: fs.FileSystem, source: str, pattern: str) -> list[fs.FileInfo]:
    folder = _fixed_folder(pattern)
    selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    root = len(PurePosixPath(folder).parts)
    steps = _steps(PurePosixPath(pattern).parts[root:])
    infos = system.get_file_info(selector)
    files = [
        info
        for info in infos
        if info.type == fs.FileType.File and _matches(PurePosixPath(info.path).parts[root:], steps)
    ]
    _refuse_table_folders(source, infos, files)
    return files


def _steps(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a pattern; `**.csv` means `**/*.csv`."""
    found: list[str] = []
    for name in names:
        rest = name.lstrip("*") if name.startswith(_ANY_FOLDERS) else None
        found += [name] if rest is None else [_ANY_FOLDERS, f"*{rest}"] if rest else [_ANY_FOLDERS]
    if found[-1] == _ANY_FOLDERS:
        found.append("*")
    return tuple(found)


@lru_cache(4096)
def _matches(names: tuple[str, ...], steps: tuple[str, ...]) -> bool:
    """Whether the names of folders and of a file are those of a pattern."""
    if not steps:
        return not names
    if steps[0] == _ANY_FOLDERS and _matches(names, steps[1:]):
        return True
    if not names or not _is_step(names[0], steps[0]):
        return False
    return _matches(names[1:], steps if steps[0] == _ANY_FOLDERS else steps[1:])


def _is_step(name: str, step: str) -> bool:
    if name.startswith(_HIDDEN) and not step.startswith(name[0]):
        return False
    return step == _ANY_FOLDERS or fnmatch.fnmatchcase(name, step)


def check_unchanged(file: InputFile) -> None:
    """Make sure that a file is the one that was found.

    Raises:
        InputFileError: it is gone, or another one.
    """
    system, path = _system(file.path)
    try:
        info = system.get_file_info(path)
    except OSError as error:
        raise InputFileError(file.path, _reason(error)) from error
    if info.type == fs.FileType.NotFound:
        raise InputFileError(file.path, "it is gone")
    if (info.size or 0, info.mtime_ns) != (file.size, file.modified_ns):
        raise InputFileError(file.path, "it changed while it was read; nothing was loaded, try again")


class ByteStream(Protocol):
    """What content is read from."""

    def read(self, count: int, /) -> bytes:
        """Up to so many bytes; none at the end."""
        ...


@contextmanager
def open_bytes(file: InputFile) -> Iterator[pyarrow.NativeFile]:
    """The file as a seekable stream of the bytes that are stored."""
    system, path = _system(file.path)
    try:
        stream = system.open_input_file(path)
    except OSError as error:
        raise InputFileError(file.path, _reason(error)) from error
    with stream:
        yield stream


@contextmanager
def open_text(file: InputFile) -> Iterator[ByteStream]:
    """The file as a stream of its content, unpacked.

    Reading it raises `ResourceLimitError` when there is too much for such a file.
    """
    system, path = _system(file.path)
    try:
        packed = system.open_input_stream(path, compression=None)
    except OSError as error:
        raise InputFileError(file.path, _reason(error)) from error
    with packed:
        if file.compression is None:
            yield packed
            return
        with pyarrow.CompressedInputStream(packed, file.compression) as stream:
            yield _Unpacked(file, stream)


class _Unpacked:
    """A stream that counts what comes out of it."""

    closed = False

    def __init__(self, file: InputFile, stream: ByteStream) -> None:
        self._file = file
        self._stream = stream
        self._content_bytes = 0

    def read(self, count: int) -> bytes:
        """Up to so many bytes of the content; none at its end."""
        block = self._stream.read(count)
        self._content_bytes += len(block)
        self._file.check_content(self._content_bytes)
        return block

    def close(self) -> None:
        """`open_text` closes the file itself."""


@contextmanager
def readable(file: InputFile) -> Iterator[None]:
    """Failures while a file is read become one that names it."""
    try:
        yield
    except (pyarrow.ArrowInvalid, pyarrow.ArrowException, EOFError) as error:
        raise InputFileError(file.path, f"it is damaged: {_reason(error)}") from error
    except OSError as error:
        raise InputFileError(file.path, _reason(error)) from error


def _reason(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0].strip()[:300] if lines else type(error).__name__


def _system(source: str) -> tuple[fs.FileSystem, str]:
    if not _SCHEME.match(source):
        return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(source))
    if source.startswith("file://"):
        # Not as a parser of addresses has it: `?` is a part of a pattern, and `#` one of a name.
        return fs.LocalFileSystem(), "/" + unquote(source.removeprefix("file://").partition("/")[2])
    if source.startswith("s3://"):
        options: dict[str, Any] = {}
        if address := store_endpoint():
            scheme, _, host = address.partition("://")
            options = {"endpoint_override": host, "scheme": scheme}
        if place := store_region():
            options["region"] = place
        return fs.S3FileSystem(**options), source.removeprefix("s3://")
    try:
        system, path = fs.FileSystem.from_uri(source)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise InputFileError(source, _reason(error)) from error
    return system, path


# ---- Whole lines of a byte range


_BLOCK_BYTES = 8 * 1024 * 1024


def line_blocks(stream: ByteStream, begin: int, end: int | None) -> Iterator[list[bytes]]:
    """Lists of lines that begin at or behind `begin` and before `end`; the stream stands one byte before `begin`.

    A line that is longer than any record may be is cut behind the allowed length, so that it is still too long. At
    most one long line is in memory: one that does not fit into a block comes alone.
    """
    line = _OpenLine(begin)
    if begin and not _skip_to_next_line(stream, line):
        return
    while block := line.take_rest() or stream.read(_BLOCK_BYTES):
        cut = block.find(b"\n")
        if cut < 0:
            line.add(block)
            continue
        if line.length:
            # The line that began in an earlier block ends here.
            if end is not None and line.begin >= end:
                return
            line.add(block[:cut])
            line.rest = block[cut + 1 :]
            del block
            yield [line.close()]
            continue
        cut = block.rfind(b"\n")
        lines, line.rest, length = block[:cut].split(b"\n"), block[cut + 1 :], cut + 1
        del block
        if end is not None and line.begin + length > end:
            kept = _beginning_before(lines, line.begin, end)
            if kept:
                yield kept
            return
        yield lines
        del lines
        line.begin += length
        # What follows has no line break: it begins the next line.
        line.add(line.take_rest())
    if line.length and (end is None or line.begin < end):
        yield [line.close()]


class _OpenLine:
    """The line whose end was not read yet, and the bytes behind it that were."""

    def __init__(self, begin: int) -> None:
        #: Where it begins in the file.
        self.begin = begin
        #: Its bytes so far, also those that are not kept.
        self.length = 0
        self.rest = b""
        self._kept: list[bytes] = []

    def add(self, more: bytes) -> None:
        """Go on with the line; what no record may have is counted, not kept."""
        room = MAX_LINE_BYTES + 1 - self.length
        if more and room > 0:
            self._kept.append(more[:room])
        self.length += len(more)

    def close(self) -> bytes:
        """The line without its break; the next one begins behind it."""
        whole = b"".join(self._kept)
        self._kept = []
        self.begin, self.length = self.begin + self.length + 1, 0
        return whole

    def take_rest(self) -> bytes:
        rest, self.rest = self.rest, b""
        return rest


def _skip_to_next_line(stream: ByteStream, line: _OpenLine) -> bool:
    """Pass over the line that reaches into this part: it belongs to the one before. False at the end of the file."""
    position = line.begin - 1
    while block := stream.read(_BLOCK_BYTES):
        cut = block.find(b"\n")
        if cut >= 0:
            line.begin, line.rest = position + cut + 1, block[cut + 1 :]
            return True
        position += len(block)
    return False


def _beginning_before(lines: list[bytes], position: int, end: int) -> list[bytes]:
    """Those of the lines that begin before `end`."""
    kept = []
    for line in lines:
        if position >= end:
            break
        kept.append(line)
        position += len(line) + 1
    return kept


class CountedQuotes:
    """A stream that counts the quotes in it, and ends where it is not a text: Arrow would not say where that is."""

    closed = False

    def __init__(self, stream: ByteStream, path: str) -> None:
        self.quotes = 0
        self._stream = stream
        self._path = path
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        #: Lines that are complete, and the bytes of the one that is not.
        self._lines = self._line_bytes = 0

    def read(self, count: int) -> bytes:
        """Up to so many bytes; none at the end.

        Raises:
            InputFileError: they are not UTF-8.
        """
        block: bytes = self._stream.read(count)
        kept = self._decoder.getstate()[0]
        if kept or not block.isascii():
            try:
                self._decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                self._refuse(kept + block, error, len(kept))
        self.quotes += block.count(b'"')
        self._lines += block.count(b"\n")
        begin = block.rfind(b"\n") + 1
        self._line_bytes = len(block) - begin + (0 if begin else self._line_bytes)
        return block

    def _refuse(self, text: bytes, error: UnicodeDecodeError, kept: int) -> NoReturn:
        line = self._lines + text.count(b"\n", 0, error.start) + 1
        begin = text.rfind(b"\n", 0, error.start) + 1
        before = -begin if begin else self._line_bytes - kept
        raise InputFileError(self._path, f"line {line:,} {not_utf8(error, before)}") from error

    def close(self) -> None:
        """The part reader closes the file itself."""
