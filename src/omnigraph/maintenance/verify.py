"""Reads every file that a readable state needs and compares it with what its writer recorded."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from omnigraph.codec import OMIT_EMPTY, Document, Key, Through
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.rebasing import recorded_root
from omnigraph.commit.schemas import find_schema
from omnigraph.commit.sidecar import list_sidecars, read_sidecar
from omnigraph.errors import BranchNotFoundError, DamageError, NotFoundError, OmniError, StorageError
from omnigraph.frozen import frozen
from omnigraph.maintenance.cleanup_plan import Fork, find_unused_forks
from omnigraph.maintenance.minimum import EdgesOutside
from omnigraph.maintenance.reading_aside import AsideReader
from omnigraph.maintenance.retention import RetentionPolicy, type_keys
from omnigraph.pipeline.workers import Progress, StageProgress
from omnigraph.storage._failures import without_advice
from omnigraph.storage.datasets.checksums import (
    REGISTRATION,
    FileSum,
    Recorded,
    check_sum,
    recorded_sums,
    replace_records,
    sum_file,
)
from omnigraph.storage.datasets.tables import dataset_exists, newest_version
from omnigraph.storage.derived import DERIVED_FOLDER, EMBEDDINGS_GROUP, DerivedArrays
from omnigraph.storage.location import (
    MANIFEST,
    RECORDED_ROOT,
    RECOVERIES,
    SCHEMA_FILES,
    attached_version,
    fork_of,
    line_address,
    line_folder,
    line_folders,
    manifest_names,
    placed,
    reference,
    registration_name,
)
from omnigraph.storage.objects import list_files

# ---- What reading every file of a graph found


class FileStatus(StrEnum):
    """What is known about one file."""

    #: It holds what its writer recorded, and can be decoded.
    OK = "ok"
    #: It can be decoded; an earlier release wrote it and recorded no checksum.
    UNRECORDED = "no_checksum"
    #: It holds something else than its writer recorded.
    MISMATCH = "mismatch"
    #: A version refers to it, and it is not there.
    MISSING = "missing"
    #: It cannot be decoded, or it contradicts what refers to it.
    UNREADABLE = "unreadable"

    @property
    def is_damage(self) -> bool:
        """Whether something has to be restored."""
        return self not in (FileStatus.OK, FileStatus.UNRECORDED)


@frozen(kw_only=True)
class VerifiedFile(Document):
    """One file, or the part of a table that several files make up."""

    #: The name below the root of the graph.
    name: Annotated[str, Key("file")]
    status: FileStatus
    #: The type whose rows the file belongs to, such as `node:Paper`.
    type_key: str | None = None
    #: What is wrong; empty when nothing is.
    message: Annotated[str, Through(str | None, lambda it: it or None, lambda it: it or "")] = ""

    def __str__(self) -> str:
        owner = "" if self.type_key is None else f" ({self.type_key})"
        return f"{self.name}{owner}: {self.status}{': ' if self.message else ''}{self.message}"


@frozen(kw_only=True)
class VerifyReport(Document):
    """Every file that a readable state of the graph needs, in the order of their names."""

    computed: ClassVar[Mapping[str, str]] = {"is_sound": "uri", "_counts": "is_sound"}
    uri: str
    read_bytes: int = 0
    #: Files that got a checksum in this run.
    recorded: int = 0
    files: tuple[VerifiedFile, ...]
    #: Nodes that lack edges which `@card(1..)` asks for; only of a sound graph.
    outside: Annotated[tuple[EdgesOutside, ...], Key("edges_outside"), OMIT_EMPTY] = ()

    @property
    def problems(self) -> tuple[VerifiedFile, ...]:
        """The files that are damaged."""
        return tuple(item for item in self.files if item.status.is_damage)

    @property
    def is_sound(self) -> Annotated[bool, Key("sound")]:
        """Whether no file is damaged."""
        return not self.problems

    def counts(self) -> dict[FileStatus, int]:
        """How many files have each status."""
        found = Counter(item.status for item in self.files)
        return {status: found[status] for status in FileStatus}

    @property
    def _counts(self) -> Annotated[Mapping[str, int], Key("counts")]:
        return {str(status): count for status, count in self.counts().items()}


# ---- Reading every file that a readable state of the graph needs, and comparing it with what its writer recorded
#
# Bytes are compared here, as a stream. Whatever foreign code decodes is decoded aside, in a process that damage may
# end, and only when the bytes are not known to be wrong already. Nothing is written and no lock of writers is taken.


_HINT = "latest_version_hint.json"
#: How often a dataset is looked at again of which files went meanwhile.
_LOOKS_AGAIN = 3


def verify_graph(
    environment: GraphEnvironment, *, branches: Collection[str] | None, progress: Progress, record: bool = False
) -> VerifyReport:
    """Read what the given branches need, or all branches and every commit that is kept.

    With `record` the files that have no checksum get one, unless a file is damaged.

    Raises:
        BranchNotFoundError: there is no such branch.
        NotFoundError: there is no graph, and no part of one.
    """
    with environment.reading.begin(), AsideReader(environment.location.uri) as aside:
        run = _Run(environment, aside, branches)
        run.verify(progress)
    report = VerifyReport(
        uri=environment.location.uri,
        files=tuple(sorted(run.found.values(), key=lambda item: item.name)),
        read_bytes=run.read_bytes,
    )
    lost = {item.name for item in report.problems} - run.damaged_records
    if not record or lost:
        return report
    return replace(report, recorded=run.record())


@frozen
class _Wanted:
    """A version that has to be readable. Without `rows` it may have been cleaned up, and its rows were not counted."""

    fork: str | None
    version: int
    rows: int | None = None


@dataclass
class _Dataset:
    """The files of one dataset, and what is recorded about them."""

    path: str
    #: The owner of its rows, as a person calls it.
    type_key: str | None
    #: Below the dataset.
    names: set[str]
    #: Where the file lies that versions refer to by a name without its line.
    places: dict[str, str] = field(default_factory=dict)
    records: dict[str, Recorded] = field(default_factory=dict)
    #: The files that belong together, stored or recorded: a data file and its blobs, the files of an index.
    members: dict[str, set[str]] = field(default_factory=dict)


class _Run:
    """One verification."""

    def __init__(self, environment: GraphEnvironment, aside: AsideReader, branches: Collection[str] | None) -> None:
        self._environment = environment
        self._branches = branches
        self._location = environment.location
        self._aside = aside
        self.found: dict[str, VerifiedFile] = {}
        self.read_bytes = 0
        self.damaged_records: set[str] = set()
        #: What files without a checksum hold, per line.
        self._unrecorded: defaultdict[str, dict[str, FileSum]] = defaultdict(dict)
        self._decoded: set[tuple[str, tuple[str, ...]]] = set()
        #: The files of each dataset at the moment when they were listed.
        self._names: dict[str, set[str]] = {}
        self._unused: frozenset[Fork] = frozenset()

    def verify(self, progress: Progress) -> None:
        with progress.stage("the manifest", 1) as stage:
            is_readable = self._verify_manifest()
            stage.update(1, 0)
        if not is_readable:
            return
        self._verify_datasets(self._wanted(), progress)
        for _ in range(_LOOKS_AGAIN):
            changed = self._with_removed_files()
            if not changed:
                break
            self._look_again(changed, progress)
        self._verify_control_files()
        self._verify_derived()

    def _verify_datasets(self, wanted: Mapping[str, set[_Wanted]], progress: Progress) -> None:
        keys = type_keys(self._environment.manifest.history())
        for path, versions in sorted(wanted.items()):
            with progress.stage(keys.get(path, path), len(versions)) as stage:
                self._verify_dataset(path, keys.get(path), versions, stage)

    # ---- files that went meanwhile: a deleted branch takes its forks along, a cleanup what no state needs

    def _with_removed_files(self) -> set[str]:
        """The datasets with damage of which files are gone that were there before."""
        damaged = [item.name for item in self.found.values() if item.status.is_damage]
        return {
            path
            for path, names in self._names.items()
            if any(name.startswith(f"{path}/") for name in damaged) and not names <= self._names_in(path)
        }

    def _look_again(self, paths: Collection[str], progress: Progress) -> None:
        """Verify datasets as they are now, without forks that no state reads any more: these may go at any moment."""
        folders = tuple(f"{path}/" for path in paths)
        self.found = {name: item for name, item in self.found.items() if not name.startswith(folders)}
        self.damaged_records = {name for name in self.damaged_records if not name.startswith(folders)}
        self._decoded = {key for key in self._decoded if key[0] not in paths}
        lines = tuple(map(self._location.child, folders))
        for line in [line for line in self._unrecorded if f"{line}/".startswith(lines)]:
            del self._unrecorded[line]
        self._unused = frozenset(find_unused_forks(self._environment, RetentionPolicy()))
        if MANIFEST in paths:
            self._verify_manifest()
        self._verify_datasets({path: it for path, it in self._wanted().items() if path in paths}, progress)

    def _names_in(self, path: str) -> set[str]:
        """The files of a dataset, without those of forks that no state reads as far as that is known."""
        # No fork lies in another one.
        unused = tuple(f"{line_folder(fork)}/" for place, fork in self._unused if place == path)
        names = (file.name[len(path) + 1 :] for file in list_files(self._location, path))
        return {name for name in names if not name.startswith(unused)}

    # ---- what to read

    def _verify_manifest(self) -> bool:
        """Whether the manifest tells what there is to verify."""
        newest = newest_version(self._location, MANIFEST)
        if newest is None:
            if not self._holds_parts():
                raise NotFoundError(f"there is no graph at {self._location}: create one with `omnigraph init`")
            self._report(MANIFEST, FileStatus.MISSING, "there is no manifest, or no version of it")
            return False
        self._verify_dataset(MANIFEST, None, {_Wanted(None, newest)})
        return self._decode(MANIFEST, None, "manifest") is not None

    def _holds_parts(self) -> bool:
        """Whether something lies here that only a graph leaves."""
        objects, location = self._environment.objects, self._location
        if any(objects.read(name) is not None for name in (*SCHEMA_FILES, RECORDED_ROOT)):
            return True
        return any(
            file.name.endswith((".manifest", ".lance"))
            for folder in (MANIFEST, "nodes", "edges")
            for file in list_files(location, folder)
        )

    def _wanted(self) -> dict[str, set[_Wanted]]:
        """The versions that have to be readable, per dataset. Beside them, whatever versions there are."""
        manifest, branches = self._environment.manifest, self._branches
        heads = manifest.state().heads
        for name in branches or ():
            if name not in heads:
                raise BranchNotFoundError(name)
        found: defaultdict[str, set[_Wanted]] = defaultdict(set)
        for name, head in heads.items():
            if branches is None or name in branches:
                for pin in head.pins.values():
                    found[pin.location].add(_Wanted(pin.branch, pin.version, pin.row_count))
        if branches is None:
            paths = {row.pin.location for row in manifest.history().versions}
            for path in (*paths, RECOVERIES):
                if dataset_exists(self._location, path):
                    found[path].update(())
        return found

    # ---- one dataset

    def _verify_dataset(
        self, path: str, type_key: str | None, wanted: Iterable[_Wanted], stage: StageProgress | None = None
    ) -> None:
        dataset = self._listed(path, type_key)
        every = set(wanted)
        for folder in line_folders(dataset.names):
            self._verify_line(dataset, folder)
        if self._branches is None:
            found = (attached_version(name) for name in dataset.names)
            every |= {_Wanted(fork_of(item[0]), item[1]) for item in found if item is not None}
        # The newest first: what older versions share with it is not read again.
        ordered = sorted(every, key=lambda it: (it.rows is None, -it.version, it.fork or ""))
        for number, item in enumerate(ordered, 1):
            self._verify_version(dataset, item)
            if stage is not None:
                stage.update(number, 0)

    def _listed(self, path: str, type_key: str | None) -> _Dataset:
        names = self._names[path] = self._names_in(path)
        folders = line_folders(names)
        dataset = _Dataset(path=path, type_key=type_key, names=names)
        for name in names:
            place = placed(name, folders)
            if place is not None:
                dataset.places[place[1]] = name
        for folder in folders:
            uri = line_address(self._location, path, folder)
            dataset.records[folder] = recorded_sums(uri)
        recorded = (name for record in dataset.records.values() for name in record.sums)
        for name in (*dataset.places, *recorded):
            group = reference(name)
            if group is not None:
                dataset.members.setdefault(group, set()).add(name)
        return dataset

    def _verify_line(self, dataset: _Dataset, folder: str) -> None:
        """What belongs to a whole line: its records, and how the dataset knows it."""
        start = f"{folder}/" if folder else ""
        records = dataset.records[folder]
        for name in records.whole:
            self._report(f"{dataset.path}/{start}{name}", FileStatus.OK, "", dataset)
        for name in records.damaged:
            message = "the checksums that it holds cannot be trusted, and files are compared without them"
            self.damaged_records.add(f"{dataset.path}/{start}{name}")
            self._unrecorded[line_address(self._location, dataset.path, folder)].update({})
            self._report(f"{dataset.path}/{start}{name}", FileStatus.MISMATCH, message, dataset)
        self._verify_hint(dataset, start)
        for name in records.sums:
            if name.startswith("_transactions/") and f"{start}{name}" in dataset.names:
                self._compare_own(dataset, folder, name)
        expected = records.sums.get(REGISTRATION)
        if folder and expected is not None:
            fork = fork_of(folder) or ""
            name = f"{dataset.path}/{registration_name(fork)}"
            if registration_name(fork) not in dataset.names:
                self._report(name, FileStatus.MISSING, f"the fork {fork} is not registered", dataset)
            else:
                self._compare(name, Recorded(sums={name: expected}), name, dataset)

    def _verify_version(self, dataset: _Dataset, wanted: _Wanted) -> None:
        folder = line_folder(wanted.fork)
        start = f"{folder}/" if folder else ""
        names = manifest_names(wanted.version)
        inner = next((name for name in names if f"{start}{name}" in dataset.names), names[0])
        manifest = f"{start}{inner}"
        if manifest not in dataset.names:
            if wanted.rows is not None:
                message = f"it is version {wanted.version}, which a branch reads"
                self._report(f"{dataset.path}/{manifest}", FileStatus.MISSING, message, dataset)
            return
        if not self._compare_own(dataset, folder, inner):
            return
        for name in self._transactions(dataset, folder, wanted.version):
            self._compare_own(dataset, folder, name)
        place = {"path": dataset.path, "fork": wanted.fork, "version": wanted.version}
        contents = self._decode(f"{dataset.path}/{manifest}", dataset, "version", **place)
        if contents is None:
            return
        if wanted.rows is not None and contents["row_count"] != wanted.rows:
            message = f"it has {contents['row_count']:,} rows, and the manifest knows {wanted.rows:,}"
            self._report(f"{dataset.path}/{manifest}", FileStatus.UNREADABLE, message, dataset)
        for number, names in contents["fragments"].items():
            self._verify_fragment(dataset, tuple(names), {**place, "number": int(number)})
        for index in contents["indexes"]:
            self._verify_index(dataset, index)

    def _transactions(self, dataset: _Dataset, folder: str, version: int) -> list[str]:
        """The recorded transactions that a version needs.

        The one that made a fork has the number of the first commit on it, and goes with the version that it made.
        """
        start = f"{folder}/" if folder else ""
        recorded = [name for name in dataset.records[folder].sums if name.startswith(f"_transactions/{version - 1}-")]
        if any(f"{start}{name}" in dataset.names for name in manifest_names(version - 1)):
            return recorded
        return [name for name in recorded if f"{start}{name}" in dataset.names] or recorded

    def _verify_fragment(self, dataset: _Dataset, names: tuple[str, ...], place: dict[str, object]) -> None:
        key = (dataset.path, names)
        if key in self._decoded:
            return
        self._decoded.add(key)
        groups = (dataset.members.get(reference(name) or name, set()) | {name} for name in names)
        # All of them, not only up to the first that is damaged.
        are_whole = [self._compare_placed(dataset, name) for group in groups for name in group]
        if all(are_whole):
            file = dataset.places.get(names[0], names[0])
            self._decode(f"{dataset.path}/{file}", dataset, "fragment", **place)

    def _verify_index(self, dataset: _Dataset, index: str) -> None:
        key = (dataset.path, (index,))
        if key in self._decoded:
            return
        self._decoded.add(key)
        names = dataset.members.get(index, set())
        if not names:
            message = "a version refers to this index"
            self._report(f"{dataset.path}/{index}", FileStatus.MISSING, message, dataset)
        for name in sorted(names):
            if self._compare_placed(dataset, name):
                file = f"{dataset.path}/{dataset.places[name]}"
                self._decode(file, dataset, "file", name=file)

    # ---- one file

    def _decode(self, file: str, dataset: _Dataset | None, operation: str, **place: object) -> dict[str, Any] | None:
        """What a read of its own process answers; None when it fails, and then the file is reported."""
        try:
            return self._aside.ask(operation, **place) or {}
        except StorageError as error:
            self._report(file, FileStatus.UNREADABLE, without_advice(error), dataset)
            return None

    def _compare_placed(self, dataset: _Dataset, name: str) -> bool:
        """Compare a file that versions refer to without its line; whether it may be decoded."""
        place = dataset.places.get(name)
        if place is None:
            message = "a version refers to it"
            self._report(f"{dataset.path}/{name}", FileStatus.MISSING, message, dataset)
            return False
        folder = place.removesuffix(name).rstrip("/")
        return self._compare(f"{dataset.path}/{place}", dataset.records.get(folder, Recorded()), name, dataset)

    def _compare_own(self, dataset: _Dataset, folder: str, name: str) -> bool:
        """Compare a file by its name below a line; whether it may be decoded."""
        place = f"{folder}/{name}" if folder else name
        file = f"{dataset.path}/{place}"
        if place not in dataset.names:
            self._report(file, FileStatus.MISSING, "it is recorded, and it is gone", dataset)
            return False
        return self._compare(file, dataset.records[folder], name, dataset)

    def _compare(self, file: str, recorded: Recorded, name: str, dataset: _Dataset) -> bool:
        known = self.found.get(file)
        if known is not None:
            return not known.status.is_damage
        expected = recorded.sums.get(name)
        status, message = FileStatus.OK, ""
        try:
            found = sum_file(self._location, file, self._count)
            if expected is None:
                status = FileStatus.UNRECORDED
                line = file.removesuffix(name).rstrip("/")
                self._unrecorded[self._location.child(line)][name] = found
            else:
                check_sum(file, expected, found)
        except DamageError as error:
            # The name of the file stands before it.
            status, message = FileStatus.MISMATCH, error.reason
        except StorageError as error:
            status, message = FileStatus.MISMATCH, without_advice(error)
        self._report(file, status, message, dataset)
        return not status.is_damage

    def _count(self, size: int) -> None:
        self.read_bytes += size

    def _verify_hint(self, dataset: _Dataset, start: str) -> None:
        """The file by which Lance remembers the newest version. Any value is harmless, one too large is damage."""
        name = f"{start}_versions/{_HINT}"
        stored = self._environment.objects.read(f"{dataset.path}/{name}")
        if stored is None:
            return
        try:
            version = int(json.loads(stored.data)["version"])
        except (ValueError, TypeError, LookupError):
            version = -1
        newest = newest_version(self._location, f"{dataset.path}/{start}".rstrip("/")) or 0
        status, message = FileStatus.OK, ""
        if not 0 < version <= newest:
            message = "it does not name a version; it is written again by the next commit"
            status = FileStatus.UNREADABLE
        self._report(f"{dataset.path}/{name}", status, message, dataset)

    def record(self) -> int:
        """Record what the files hold that have no checksum, and replace damaged records; how many files it was."""
        with self._environment.window():
            for uri, sums in self._unrecorded.items():
                replace_records(uri, {**sums, **recorded_sums(uri).sums})
        return sum(map(len, self._unrecorded.values()))

    def _report(self, name: str, status: FileStatus, message: str = "", dataset: _Dataset | None = None) -> None:
        known = self.found.get(name)
        if known is not None and known.status.is_damage:
            # The first finding is nearest to the cause.
            return
        owner = None if dataset is None else dataset.type_key
        self.found[name] = VerifiedFile(name=name, status=status, message=message, type_key=owner)

    # ---- beside the datasets

    def _verify_control_files(self) -> None:
        environment = self._environment
        hashes = {head.schema_hash for head in environment.manifest.state().heads.values()}
        for schema_hash in sorted(hashes):
            try:
                find_schema(environment.objects, environment.manifest, schema_hash)
            except OmniError as error:
                name = next((it for it in SCHEMA_FILES if it in error.message), SCHEMA_FILES[0])
                self._report(name, FileStatus.UNREADABLE, without_advice(error))
        for name in SCHEMA_FILES:
            self._report(name, FileStatus.OK)
        if environment.objects.read(RECORDED_ROOT) is not None:
            is_readable = recorded_root(environment.objects) is not None
            status = FileStatus.OK if is_readable else FileStatus.UNREADABLE
            message = "" if is_readable else "the next writable open writes it again"
            self._report(RECORDED_ROOT, status, message)
        for name in list_sidecars(environment.objects):
            try:
                read_sidecar(environment.objects, name)
            except OmniError as error:
                self._report(name, FileStatus.UNREADABLE, without_advice(error))

    def _verify_derived(self) -> None:
        """State that is rebuilt when it is damaged; reported all the same, because the disk may damage more."""
        if not self._location.is_local:
            return
        arrays = DerivedArrays(self._location, writable=False)
        for folder in sorted((self._location.path / DERIVED_FOLDER).glob("*/*")):
            group, name = folder.parts[-2:]
            if not folder.is_dir() or name.startswith(".") or group == EMBEDDINGS_GROUP:
                continue
            status, message = FileStatus.OK, ""
            if arrays.load(group, name) is None:
                if not folder.is_dir():
                    # It went meanwhile, as a set does that no head reads any more.
                    continue
                status = FileStatus.MISMATCH
                message = "it is built again when it is needed: nothing has to be restored"
            self._report(f"{DERIVED_FOLDER}/{group}/{name}", status, message)
