"""The folder of bad records of a load: complete before the commit, and gone when the load does not happen."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from omnigraph.api.results import LoadQuarantine
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import TableKey
from omnigraph.errors import BadRequestError, LoadReport
from omnigraph.frozen import frozen
from omnigraph.pipeline.export.files import Staging, staging
from omnigraph.pipeline.load.job import LoadJob
from omnigraph.pipeline.load.prepared import PreparedLoad
from omnigraph.pipeline.load.quarantine import MAPPING, REASONS, Quarantined
from omnigraph.pipeline.sources.inputs import is_remote
from omnigraph.pipeline.upsert import LoadMode
from omnigraph.storage.location import GraphLocation, parse_location
from omnigraph.storage.uploads import holds_objects, remove_uploaded

README = "_README.md"
#: Examples of each rule that the README shows.
_SHOWN = 5


def quarantine_place(folder: str | os.PathLike[str], graph_uri: str) -> GraphLocation:
    """The place that a user means for bad records.

    Raises:
        BadRequestError: it holds something, is inside the graph, or in a directory that does not exist.
    """
    location = parse_location(folder)
    is_taken = not _is_free(location.path) if location.is_local else holds_objects(location)
    if is_taken:
        raise BadRequestError(
            f"{location} is not an empty folder, and a quarantine replaces nothing: remove it or choose another name"
        )
    if f"{location.uri}/".startswith(f"{graph_uri.rstrip('/')}/"):
        raise BadRequestError(f"{location} is inside the graph: choose a place outside of it")
    if location.is_local and not location.path.parent.is_dir():
        raise BadRequestError(f"{location.path.parent} is not a directory: create it first")
    return location


def refuse_inside(folder: GraphLocation, sources: Iterable[str]) -> None:
    """Refuse a folder that another load of one of these files, folders or patterns would read.

    Raises:
        BadRequestError: it lies below one of them.
    """
    for source in sources:
        # A pattern reaches below the folder in front of it.
        above = source.partition("**")[0].rstrip("/")
        if is_remote(above) or not folder.is_local:
            is_inside = folder.uri.startswith(f"{above}/")
        else:
            is_inside = Path(above).resolve() in folder.path.resolve().parents
        if is_inside:
            raise BadRequestError(f"{folder} is inside of {source}, which the next load reads: choose another place")


def _is_free(path: Path) -> bool:
    if path.is_symlink():
        return False
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


@frozen(kw_only=True)
class Reload:
    """What loads a quarantine again: the rules of the first load, as the command line says them."""

    graph_uri: str
    branch: str
    mode: LoadMode
    grammar: str
    on_duplicate: str | None
    dangling: str | None
    upsert: bool
    check_minimum: bool

    def command(self, folder: str, *, has_mapping: bool) -> str:
        """The command."""
        # What an overwrite has loaded has to stay.
        mode = LoadMode.APPEND if self.mode is LoadMode.OVERWRITE else self.mode
        source = ["--mapping", f"{folder}/{MAPPING}"] if has_mapping else ["--data", folder]
        words = ["omnigraph", "load", self.graph_uri, *source, "--mode", str(mode)]
        words += ["--branch", self.branch] if self.branch != "main" else []
        words += ["--grammar", self.grammar] if self.grammar != "strict" else []
        words += ["--on-duplicate", self.on_duplicate] if self.on_duplicate else []
        words += ["--dangling", self.dangling] if self.dangling else []
        words += ["--upsert"] if self.upsert else []
        words += ["--check-minimum"] if self.check_minimum else []
        return shlex.join(words)


@contextmanager
def quarantined(
    job: LoadJob,
    prepared: PreparedLoad,
    target: GraphLocation,
    again: Reload,
    report: LoadReport,
    *,
    durable: bool,
    dry_run: bool,
    has_effect: Callable[[], bool],
) -> Iterator[LoadQuarantine | None]:
    """The bad records of a load in their folder while it is committed; None when there are none.

    When the block fails the folder goes, unless the load may have become visible. A dry run leaves none.
    """
    if not job.bad_records(prepared):
        yield None
        return
    with staging(target) as place:
        place.result.mkdir()
        found = job.write_quarantine(prepared, str(place.scratch), place.place)
        command = again.command(target.uri, has_mapping=any(path.name == MAPPING for path in found.files))
        readme = place.scratch / "readme"
        readme.write_text(_readme(found, report, command), encoding="utf-8")
        found.files.append(place.place(str(readme), README))
        reach(Failpoint.QUARANTINE_WRITTEN)
        receipt = _receipt(found, target, command, dry_run=dry_run)
        if dry_run:
            yield receipt
            return
        _publish(place, found, durable=durable)
        try:
            reach(Failpoint.QUARANTINE_PUBLISHED)
            yield receipt
        except BaseException:
            # Also after an interrupt: nothing of a load that did not happen stays.
            if not has_effect():
                _withdraw(place, found)
            raise


def _publish(place: Staging, found: Quarantined, *, durable: bool) -> None:
    if place.target.is_local:
        with suppress(OSError):
            # An empty folder of this name is what the caller made for it.
            place.target.path.rmdir()
    place.publish(found.files, durable=durable)


def _withdraw(place: Staging, found: Quarantined) -> None:
    if place.target.is_local:
        shutil.rmtree(place.target.path, ignore_errors=True)
    else:
        remove_uploaded(place.target, [path.relative_to(place.result).as_posix() for path in found.files])


def _receipt(found: Quarantined, target: GraphLocation, command: str, *, dry_run: bool) -> LoadQuarantine:
    def of(kind: str) -> dict[str, int]:
        keys: list[TableKey] = [key for key in sorted(found.types) if key.kind == kind]
        return {key.name: found.types[key] for key in keys}

    return LoadQuarantine(
        folder=None if dry_run else target.uri,
        records=found.records,
        nodes=of("node"),
        edges=of("edge"),
        rules=dict(found.rules),
        command=None if dry_run else command,
    )


def _readme(found: Quarantined, report: LoadReport, command: str) -> str:
    """What a person finds in the folder."""
    records = "1 record was" if found.records == 1 else f"{found.records:,} records were"
    # Dropped edges are in the report too, and not in the folder.
    totals = {rule: count for rule, count in report.totals.items() if rule in found.rules}
    report = replace(report, totals=totals)
    listing = "\n".join(f"- {rule}: {count:,}" for rule, count in found.rules.items())
    return (
        f"# Quarantine of a load\n\n{records} not loaded. They are in this folder as their source has them.\n"
        f"Correct them, then load them by the same rules:\n\n```\n{command}\n```\n\n"
        f"`{REASONS}/` says for every record why it was not loaded. Records by rule:\n\n{listing}\n\n"
        f"The first of them:\n\n```\n{report.render(_SHOWN)}\n```\n"
    )
