"""When an archive of classes is used, recorded, or left alone; no JVM runs here."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from omnigraph.errors import SparkError
from omnigraph.spark import session
from omnigraph.spark.jvm import Archive, Java, discard_archive, keep_archive, plan_archive
from omnigraph.spark.session import SparkSettings


@pytest.fixture
def java(tmp_path: Path) -> Java:
    server = tmp_path / "java" / "lib" / "server"
    server.mkdir(parents=True)
    (server / "classes.jsa").write_text("")
    return Java(home=tmp_path / "java", version="17.0.9", origin="test")


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    (tmp_path / "jars").mkdir()
    return tmp_path / "jars"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def test_the_first_session_records_and_the_second_uses(
    java: Java, jars: Path, folder: Path
) -> None:
    first = plan_archive(java, "4.3.0", jars, folder)
    assert first.recording is not None
    assert f"-XX:ArchiveClassesAtExit={first.recording}" in first.options
    first.recording.write_text("classes")
    keep_archive(first)
    assert not first.recording.exists()
    second = plan_archive(java, "4.3.0", jars, folder)
    assert second.recording is None
    assert f"-XX:SharedArchiveFile={first.file}" in second.options
    assert "-Xshare:auto" in second.options
    for archive in (first, second):
        assert {"-Xlog:cds=off", "-Xlog:cds+dynamic=off"} <= set(archive.options)


def test_another_java_another_spark_and_moved_jars_have_their_own(
    java: Java, jars: Path, folder: Path
) -> None:
    newer = Java(home=java.home, version="21.0.1", origin="test")
    names = {plan_archive(java, "4.3.0", jars, folder).file}
    names.add(plan_archive(newer, "4.3.0", jars, folder).file)
    names.add(plan_archive(java, "4.3.1", jars, folder).file)
    os.utime(jars, (1, 1))
    names.add(plan_archive(java, "4.3.0", jars, folder).file)
    assert len(names) == 4


def test_a_java_without_a_base_archive_records_nothing(jars: Path, folder: Path) -> None:
    bare = Java(home=folder / "bare", version="17.0.9", origin="test")
    assert plan_archive(bare, "4.3.0", jars, folder) == Archive()


def test_no_folder_and_no_jars_mean_no_archive(java: Java, jars: Path, folder: Path) -> None:
    assert plan_archive(java, "4.3.0", jars, None) == Archive()
    assert plan_archive(java, "4.3.0", jars / "gone", folder) == Archive()


def test_a_jvm_that_wrote_nothing_is_no_failure(java: Java, jars: Path, folder: Path) -> None:
    keep_archive(plan_archive(java, "4.3.0", jars, folder))
    keep_archive(Archive())
    assert list(folder.iterdir()) == []


def test_recordings_of_killed_processes_go_after_a_day(
    java: Java, jars: Path, folder: Path
) -> None:
    old, young = folder / "a-1.recording", folder / "b-2.recording"
    for path, age_s in ((old, 2 * 86400), (young, 60)):
        path.write_text("")
        os.utime(path, (time.time() - age_s,) * 2)
    plan_archive(java, "4.3.0", jars, folder)
    assert (old.exists(), young.exists()) == (False, True)


def test_a_discarded_archive_is_recorded_again(java: Java, jars: Path, folder: Path) -> None:
    first = plan_archive(java, "4.3.0", jars, folder)
    assert first.recording is not None
    first.recording.write_text("classes")
    keep_archive(first)
    discard_archive(plan_archive(java, "4.3.0", jars, folder))
    assert list(folder.iterdir()) == []
    assert plan_archive(java, "4.3.0", jars, folder).recording is not None


@pytest.mark.parametrize("fault_is_in_the_archive", [True, False])
def test_an_archive_goes_only_when_the_jvm_starts_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault_is_in_the_archive: bool
) -> None:
    """A fake launcher in place of the JVM: it fails with the archive, or always."""
    archive = Archive(options=("-XX:SharedArchiveFile=x",), file=tmp_path / "x.jsa")
    assert archive.file is not None
    archive.file.write_text("damaged")
    tries: list[Archive] = []

    def launch_jvm(conf: object, environ: object, *, archive: Archive, log_folder: object) -> str:
        tries.append(archive)
        if archive.options or not fault_is_in_the_archive:
            raise SparkError("no JVM")
        return "jvm"

    home = Java(home=tmp_path, version="17", origin="test")
    monkeypatch.setattr(session, "find_java", lambda: home)
    monkeypatch.setattr(session, "_archive", lambda settings, java: archive)
    monkeypatch.setattr(session, "launch_jvm", launch_jvm)
    if fault_is_in_the_archive:
        assert session._launch(SparkSettings(), tmp_path, None, {})[0] == "jvm"
    else:
        with pytest.raises(SparkError, match="no JVM"):
            session._launch(SparkSettings(), tmp_path, None, {})
    assert tries == [archive, Archive()]
    assert archive.file.exists() is not fault_is_in_the_archive
