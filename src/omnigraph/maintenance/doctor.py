"""The health of a graph: every check on its own, so that a broken graph is reported as far as it can be read.

Nothing is written, nothing is settled, and no lock is held. A check that cannot look is a finding too.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.leftovers import staged_max_age_s
from omnigraph.commit.lineage import disordered, doubled
from omnigraph.commit.publisher import FOLD_THRESHOLD
from omnigraph.commit.rebasing import find_foreign_versions, recorded_root
from omnigraph.commit.rows import INTERNAL_SCHEMA_VERSION, TablePin
from omnigraph.commit.schemas import GraphSchema, find_schema, read_schema_files
from omnigraph.commit.sidecar import list_sidecars, read_sidecar
from omnigraph.commit.snapshot import snapshot_of
from omnigraph.commit.sweep import has_unsettled
from omnigraph.engine.tables.context import EngineCaches
from omnigraph.engine.tables.settings import EngineSettings
from omnigraph.errors import HistoricalVersionReclaimedError, NotFoundError, OmniError, RecoveryRequiredError, is_panic
from omnigraph.errors.text import size_text
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import unbuilt_indexes
from omnigraph.maintenance.cleanup_plan import find_leftovers, is_busy, plan_cleanup
from omnigraph.maintenance.findings import DiskUse, DoctorReport, Finding, Health, Inspection, worst_first
from omnigraph.maintenance.indexes import measure_indexes, missing_indexes
from omnigraph.maintenance.minimum import edges_outside
from omnigraph.maintenance.repair import dangling_edges
from omnigraph.maintenance.retention import KEEP_ADVISED, RetentionPolicy, published_heads
from omnigraph.maintenance.verify import FileStatus, verify_graph
from omnigraph.pipeline.workers import Progress, Silent
from omnigraph.storage._failures import without_advice
from omnigraph.storage.datasets.compaction import choose_rewrites, fragment_facts
from omnigraph.storage.datasets.completeness import find_missing, read_one_row
from omnigraph.storage.datasets.staged import is_own_movement
from omnigraph.storage.datasets.versions import list_versions
from omnigraph.storage.derived import DERIVED_FOLDER, DerivedArrays
from omnigraph.storage.location import MANIFEST, SCHEMA_FILES, GraphLocation, walk
from omnigraph.storage.locks import lock_holder
from omnigraph.storage.objects import StoredFile, list_files

#: Types of fewer rows are read as a whole in a moment: an index would not be noticed.
_INDEXED_ROWS = 10_000
#: Fragments that compaction would put together, above which reads of a type get slower.
_MANY_FRAGMENTS = 64
#: A type is worn when this many rows are deleted, and at least one in this number.
_DELETED_ROWS, _DELETED_SHARE = 1_000, 4
#: Old versions of the manifest above which every open gets slower.
_MANY_MANIFEST_VERSIONS = 1_000


def examine(
    environment: GraphEnvironment, *, deep: bool = False, rules: bool = False, progress: Progress | None = None
) -> DoctorReport:
    """Look at everything; with `deep` every file is read, with `rules` every node is held against `@card`, too."""
    look = Inspection(environment)
    findings: list[Finding] = []
    checks = dict(_CHECKS)
    if deep:
        # First: in a process of its own it meets whatever could end this one.
        checks = {"files": partial(_check_files, progress=progress), **checks}
    if rules:
        checks["rules"] = _check_rules
    for name, check in checks.items():
        try:
            found = list(check(look))
            if not found and name in _ALL_WELL:
                found = [Finding(Health.OK, _ALL_WELL[name])]
        except OmniError as error:
            found = [look.failure(error, error.message)]
        except BaseException as error:
            # A damaged graph may fail anywhere: the other checks still run.
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            message = f"this check failed: {type(error).__name__}: {error}"
            found = [Finding(Health.ERROR, message)]
        findings += [replace(item, check=name) for item in found]
        if name == "format" and any(item.severity is Health.ERROR for item in found):
            # Without a manifest that can be read there is nothing that the others could be held against.
            break
    return DoctorReport(
        uri=environment.location.uri,
        findings=worst_first(findings),
        disk=tuple(look.disk),
        size_bytes=look.size_bytes,
        derived_bytes=look.derived_bytes,
    )


def _check_files(look: Inspection, progress: Progress | None) -> Iterator[Finding]:
    try:
        report = verify_graph(look.environment, branches=None, progress=progress or Silent())
    except NotFoundError:
        # The check of the format reports that there is no graph.
        return
    for item in report.problems:
        yield look.damage(f"{item}; restore it from a backup")
    if report.is_sound:
        files = _count(len(report.files), "file")
        old = report.counts()[FileStatus.UNRECORDED]
        note = f", {old:,} of them without a checksum" if old else ""
        yield Finding(Health.OK, f"{files} read{note}, {size_text(report.read_bytes)}")


def _check_rules(look: Inspection) -> Iterator[Finding]:
    found = [Finding(Health.WARNING, str(item)) for item in edges_outside(look.environment)]
    yield from found or [Finding(Health.OK, "every node has the edges that the schema asks for")]


def _check_format(look: Inspection) -> Iterator[Finding]:
    branches = len(look.state.heads)
    yield Finding(Health.OK, f"storage format {INTERNAL_SCHEMA_VERSION}, {_count(branches, 'branch')}")


def _check_manifest(look: Inspection) -> Iterator[Finding]:
    commits = len(look.history.commits)
    versions = list_versions(look.environment.location, MANIFEST).version_count
    fragments = look.environment.manifest.fragment_count()
    parts = f"{_count(versions, 'version')} and {_count(fragments, 'fragment')}"
    text = f"{_count(commits, 'commit')}, {parts} of the manifest"
    if versions > _MANY_MANIFEST_VERSIONS or fragments > 2 * FOLD_THRESHOLD:
        yield Finding(Health.WARNING, f"{text}: opening gets slower", look.run("optimize"))
    else:
        yield Finding(Health.OK, text)


def _check_schema(look: Inspection) -> Iterator[Finding]:
    objects, head = look.environment.objects, look.state.head("main")
    staged = [name for name in SCHEMA_FILES if objects.read(f"{name}.staging") is not None]
    if staged:
        yield Finding(
            Health.WARNING,
            f"a schema change was interrupted: {', '.join(staged)} wait; the next write settles it",
            look.run("recovery list"),
        )
        return
    schema = read_schema_files(objects, head.schema_hash)
    types = len(schema.catalog.nodes) + len(schema.catalog.edges)
    yield Finding(Health.OK, f"the schema files are those of the manifest, {_count(types, 'type')}")


def _check_heads(look: Inspection) -> Iterator[Finding]:
    for name, head in sorted(look.state.heads.items()):
        for key, pin in sorted(head.pins.items()):
            problem = _problem_of(look, pin)
            if problem is None:
                continue
            current = look.environment.manifest.state().heads.get(name)
            if current is None or current.pins.get(key) != pin:
                # The branch was deleted, or moved on, while this looked.
                continue
            what = f"{key} of branch {name} cannot be read"
            yield look.damage(f"{what}: {problem}; restore it from a backup")


def _problem_of(look: Inspection, pin: TablePin) -> str | None:
    """What is wrong with the published version of a type; looks at all of its files, and reads one row."""
    try:
        table = look.open(pin)
        rows = table.count_rows()
        listing = look.listings.get(pin.location)
        if listing is not None:
            missing = find_missing(look.environment.location, table, listing.files)
            if missing is not None:
                return missing
        read_one_row(table)
    except HistoricalVersionReclaimedError:
        return f"version {pin.version} is gone"
    except OmniError as error:
        return without_advice(error)
    if rows != pin.row_count:
        return f"it has {rows:,} rows, and the manifest knows {pin.row_count:,}"
    return None


def _check_drift(look: Inspection) -> Iterator[Finding]:
    manifest = look.environment.manifest
    # Before and after the look at the datasets: a write that ends meanwhile is neither ahead nor behind. In between
    # the sidecars, which are there from before a dataset moves until after the publish.
    before = published_heads(manifest.history())
    heads = {
        (path, line.fork): line.head
        for path in look.listings
        for line in list_versions(look.environment.location, path).lines
    }
    has_sidecars = bool(list_sidecars(look.environment.objects))
    after = published_heads(manifest.history())
    for (path, fork), head in sorted(heads.items(), key=str):
        name = look.names.get(path, path) if fork is None else f"{path} (fork {fork})"
        if (known := before.get((path, fork))) is not None and head < known:
            what = f"{name} is at version {head}, and the manifest knows version {known}"
            yield look.damage(f"{what}: published data is missing; restore it from a backup")
        if (known := after.get((path, fork))) is not None and head > known:
            what = f"{name} is at version {head}, and the manifest knows version {known}"
            is_late = not has_sidecars and _is_late(look, path, fork, known)
            yield _ahead(look, what, is_explained=has_sidecars, is_late=is_late)


def _is_late(look: Inspection, path: str, fork: str | None, known: int) -> bool:
    table = look.environment.tables.open(path, fork)
    return is_own_movement(table, known, table.version)


def _ahead(look: Inspection, what: str, *, is_explained: bool, is_late: bool) -> Finding:
    if is_late:
        return Finding(
            Health.WARNING,
            f"{what}: a writer that had lost the commit lock moved it; the next write to it undoes that",
            look.run("repair", "--confirm"),
        )
    if is_explained:
        return Finding(Health.INFO, f"{what}: a write is on its way, or was interrupted")
    return Finding(Health.ERROR, f"{what}: something else has written to it", look.run("repair"))


def _check_recovery(look: Inspection) -> Iterator[Finding]:
    for name in list_sidecars(look.environment.objects):
        try:
            sidecar = read_sidecar(look.environment.objects, name)
        except RecoveryRequiredError as error:
            yield Finding(Health.ERROR, error.message)
            continue
        if sidecar is not None:
            yield Finding(
                Health.WARNING,
                f"a {sidecar.writer_kind} on branch {sidecar.branch} is at work or was interrupted; "
                "the next write, or opening for writing, settles it",
                look.run("recovery list"),
            )


def _check_lock(look: Inspection) -> Iterator[Finding]:
    holder = lock_holder(look.environment.location, look.environment.objects)
    if holder is not None:
        yield Finding(Health.INFO, holder)


def _check_indexes(look: Inspection) -> Iterator[Finding]:
    head = look.state.head("main")
    schema = read_schema_files(look.environment.objects, head.schema_hash)
    lacking = defaultdict[str, list[str]](list)
    for item in missing_indexes(schema.catalog, snapshot_of(head), look.open):
        lacking[item.type_key].append(item.property)
    rows = {str(key): pin.row_count for key, pin in head.pins.items()}
    for type_key, properties in sorted(lacking.items()):
        is_large = rows[type_key] >= _INDEXED_ROWS
        yield Finding(
            Health.WARNING if is_large else Health.INFO,
            f"{type_key}: not all of {_count(rows[type_key], 'row')} are in the indexes of "
            f"{', '.join(sorted(set(properties)))}",
            look.run("optimize"),
        )
    for type_key, definition in schema.catalog.types.items():
        for written, reason in unbuilt_indexes(definition):
            yield Finding(Health.INFO, f"{type_key}: {written} is recorded and not built: {reason}")
    if not lacking:
        yield Finding(Health.OK, "every index that is built covers its type")


def _check_recall(look: Inspection) -> Iterator[Finding]:
    """What searches through vector indexes find, measured again. Reads the vectors that they cover."""
    head = look.state.head("main")
    schema = read_schema_files(look.environment.objects, head.schema_hash)
    caches = EngineCaches(EngineSettings.from_environment(), DerivedArrays(look.environment.location, writable=False))
    for item in measure_indexes(schema.catalog, snapshot_of(head), look.open, caches):
        what = f"{item.type_key}.{item.column}"
        if item.expected is None:
            yield Finding(
                Health.WARNING,
                f"{what}: its index is not known to reach the wanted recall of {item.wanted:g}, so every search "
                "compares all vectors",
                look.run("optimize"),
            )
        elif item.is_low:
            yield Finding(
                Health.WARNING,
                f"{what}: searches find {item.found:.3f} of the nearest, {item.wanted:g} are wanted and "
                f"{item.expected:.3f} were found when the index was built; if it stays so after `optimize`, ask for "
                "more with OMNIGRAPH_VECTOR_RECALL",
                look.run("optimize"),
            )
        else:
            yield Finding(
                Health.OK, f"{what}: searches find {item.found:.3f} of the nearest, {item.wanted:g} are wanted"
            )


def _check_fragments(look: Inspection) -> Iterator[Finding]:
    for key, pin in sorted(look.state.head("main").pins.items()):
        fragments = fragment_facts(look.open(pin))
        small = sum(len(group) for group in choose_rewrites(fragments))
        deleted = sum(item.deleted for item in fragments)
        if small >= _MANY_FRAGMENTS:
            yield Finding(
                Health.WARNING,
                f"{key}: {small:,} of {len(fragments):,} fragments are small: reads get slower",
                look.run("optimize"),
            )
        if deleted >= _DELETED_ROWS and deleted * _DELETED_SHARE >= deleted + pin.row_count:
            yield Finding(
                Health.WARNING, f"{key}: {deleted:,} deleted rows beside {pin.row_count:,} others", look.run("optimize")
            )


def _check_disk(look: Inspection) -> Iterator[Finding]:
    location = look.environment.location
    for path, listing in look.listings.items():
        look.disk.append(
            DiskUse(
                type_key=look.names.get(path, path),
                location=path,
                size_bytes=listing.size_bytes,
                versions=listing.version_count,
                forks=sum(line.fork is not None for line in listing.lines),
            )
        )
    look.disk.sort(key=lambda item: (-item.size_bytes, item.type_key))
    for file in list_files(location, ""):
        look.size_bytes += file.size_bytes
        if file.name.startswith(f"{DERIVED_FOLDER}/"):
            look.derived_bytes += file.size_bytes
    yield Finding(Health.OK, f"{size_text(look.size_bytes)} in {_count(len(look.disk), 'type')}")


def _check_versions(look: Inspection) -> Iterator[Finding]:
    plan = plan_cleanup(look.environment, RetentionPolicy(keep=KEEP_ADVISED))
    removals = [it.removal for it in plan.datasets if it.removal is not None and not it.is_dropped]
    old = sum(removal.version_count for removal in removals)
    size = sum(removal.size_bytes for removal in removals)
    if old:
        yield Finding(
            Health.INFO,
            f"{_count(old, 'version')} ({size_text(size)}) would go if {KEEP_ADVISED} commits of every branch "
            "stayed readable",
            look.run("cleanup", f"--keep {KEEP_ADVISED}"),
        )


# ---- What dead writers left: forks of no branch, files of no version, answers of no operation


@frozen
class _Left:
    """What nothing refers to."""

    forks: frozenset[tuple[str, str]]
    files: frozenset[StoredFile]

    def without(self, other: _Left) -> _Left:
        return _Left(self.forks - other.forks, self.files - other.files)

    def __bool__(self) -> bool:
        return bool(self.forks or self.files)

    def __str__(self) -> str:
        size = sum(file.size_bytes for file in self.files)
        forks, files = _count(len(self.forks), "fork"), _count(len(self.files), "file")
        return f"{forks} of no branch and {files} ({size_text(size)}) that nothing refers to"


def _check_leftovers(look: Inspection) -> Iterator[Finding]:
    """What `cleanup` would remove, and what may belong to a writer that is at work.

    Without writers and readers, everything that nothing refers to was left by writers that died. Otherwise, and always
    on an object store, only its age tells.
    """
    environment, max_age_s = look.environment, staged_max_age_s()
    was_quiet = not _is_in_use(environment)
    everything = _Left(*find_leftovers(environment, look.listings, None))
    # Again: a writer that began meanwhile has files among these.
    is_quiet = was_quiet and not _is_in_use(environment)
    left = everything
    if not is_quiet:
        left = _Left(*find_leftovers(environment, look.listings, max_age_s))
    young = everything.without(left)
    if left:
        cleanup = look.run("cleanup", f"--keep {KEEP_ADVISED} --confirm")
        yield Finding(Health.WARNING, str(left), cleanup)
    if young:
        quiet = "when none is, or " if environment.location.is_local else ""
        yield Finding(
            Health.INFO,
            f"{young}: they may belong to a writer or reader that is at work; `cleanup` removes what is left {quiet}"
            f"at an age of {max_age_s / 86_400:g} days (OMNIGRAPH_STAGED_MAX_AGE)",
        )


def _is_in_use(environment: GraphEnvironment) -> bool:
    """Whether what nothing refers to may be needed: by a writer, by a reader, or by the recovery of a dead writer."""
    return is_busy(environment) or has_unsettled(environment)


# ---- Meaning: a history without circles, and edges between nodes that exist


#: Findings of one kind that are reported one by one.
_SHOWN = 10


def _check_history(look: Inspection) -> Iterator[Finding]:
    """Commits that are there twice, and circles: whatever walks along the history would not come to an end."""
    twice = sorted(doubled(look.environment.manifest.commit_rows()))
    for commit_id in twice[:_SHOWN]:
        message = f"commit {commit_id} is in the manifest more than once"
        yield Finding(Health.ERROR, message, look.run("repair", "--confirm"))
    wrong = [commit for commit in disordered(look.history.commits) if commit not in twice]
    for commit_id in wrong[:_SHOWN]:
        yield Finding(
            Health.ERROR, f"commit {commit_id} builds on one that is not older: restore the manifest from a backup"
        )


def _check_edges(look: Inspection) -> Iterator[Finding]:
    """Edges without one of their ends. Reads the ids of all nodes and the ends of all edges."""
    environment = look.environment

    def schema_of(schema_hash: str) -> GraphSchema:
        return find_schema(environment.objects, environment.manifest, schema_hash)

    found, unchecked = dangling_edges(environment, schema_of)
    for failed in unchecked:
        what = f"{failed.type_key} of branch {failed.branch} cannot be checked"
        yield look.failure(failed.error, f"{what}: {failed.error.message}")
    for item in found:
        edges, examples = _count(item.count, "edge"), ", ".join(item.examples)
        message = f"{item.type_key} of branch {item.branch} has {edges} without an end: {examples}"
        yield Finding(Health.ERROR, message, look.run("repair", "--confirm"))


# ---- Place: addresses of another root, and links that lead out of it


_SHOWN_LINKS = 3


def _check_place(look: Inspection) -> Iterator[Finding]:
    """Whether everything that the graph refers to lies below its root.

    Raises:
        OutsideRootError: a version of a fork reads files outside of its dataset.
    """
    environment = look.environment
    foreign = find_foreign_versions(environment)
    if foreign:
        message = (
            f"the graph was copied or moved: {len(foreign):,} versions of branches hold the address of another "
            f"root, such as {foreign[0]}; they are read here all the same"
        )
        if recorded_root(environment.objects) != environment.location.root:
            message += ", and the next open for writing corrects them"
        yield Finding(Health.INFO, message)
    if links := _find_links(environment.location):
        yield Finding(
            Health.WARNING,
            f"{len(links):,} links below the root, such as {', '.join(links[:_SHOWN_LINKS])}, are not followed: "
            "put what they lead to in their place, or remove them",
        )


def _find_links(location: GraphLocation) -> list[str]:
    """The links below the root, sorted; empty on an object store, which has none."""
    if not location.is_local:
        return []
    found = (entry.path for entry in walk(location, "") if entry.is_symlink())
    return sorted(os.path.relpath(path, location.uri) for path in found)


# ---- All checks


#: What a check reports that finds nothing.
_ALL_WELL = {
    "history": "every commit is there once, after what it builds on",
    "heads": "one row of every type of every branch was read",
    "edges": "every edge has both ends",
    "place": "every address lies below the root, and no link leads out of it",
    "drift": "no dataset moved without a commit",
    "recovery": "no interrupted write",
    "lock": "the commit lock is free",
    "recall": "every `nearest` compares all vectors",
    "fragments": "the fragments of main are as they should be",
    "leftovers": "no forks or files that nothing refers to",
    "versions": "no version that the newest commits do not need",
}
#: In the order of the report.
_CHECKS: Mapping[str, Callable[[Inspection], Iterator[Finding]]] = {
    "format": _check_format,
    "catalog": _check_manifest,
    "schema": _check_schema,
    "history": _check_history,
    "heads": _check_heads,
    "edges": _check_edges,
    "place": _check_place,
    "drift": _check_drift,
    "recovery": _check_recovery,
    "lock": _check_lock,
    "indexes": _check_indexes,
    "recall": _check_recall,
    "fragments": _check_fragments,
    "leftovers": _check_leftovers,
    "versions": _check_versions,
    "disk": _check_disk,
}


def _count(number: int, noun: str) -> str:
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"
