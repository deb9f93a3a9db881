"""Settings from the environment are read in one way, whichever room declares them."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path

import pytest

import omnigraph
from omnigraph.core.env_settings import DECLARED, Duration, Variable, WholeNumber, cache_folder
from support.subtests import each_case

SOURCES = Path(omnigraph.__file__).parent
for _path in sorted(SOURCES.rglob("*.py")):
    if re.search(r"= (WholeNumber|Duration)\(", _path.read_text(encoding="utf-8")):
        importlib.import_module(".".join(["omnigraph", *_path.relative_to(SOURCES).with_suffix("").parts]))

NUMBERS = [item for item in DECLARED.values() if isinstance(item, WholeNumber)]
DURATIONS = [item for item in DECLARED.values() if isinstance(item, Duration)]


def test_every_kind_of_setting_is_declared() -> None:
    """Otherwise the tables below would be empty."""
    assert {"OMNIGRAPH_EMBED_TIMEOUT_MS", "OMNIGRAPH_COLUMN_CACHE_BYTES"} <= set(NUMBERS)
    assert {"OMNIGRAPH_STAGED_MAX_AGE"} <= set(DURATIONS)


@each_case("variable", NUMBERS, ids=str)
def test_a_whole_number_within_its_bounds_is_taken(
    variable: WholeNumber, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(variable, raising=False)
    assert variable.read() == variable.default
    for number in {variable.lowest, variable.lowest + 1, variable.default, variable.highest}:
        for text in (str(number), f" {number} ", f"{number:0>18}"):
            monkeypatch.setenv(variable, text)
            assert variable.read() == number
    assert caplog.records == []


@each_case("variable", NUMBERS, ids=str)
def test_what_is_no_whole_number_within_its_bounds_falls_back_with_a_warning(
    variable: WholeNumber, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = ["", " ", "-1", "1.5", "1e3", "many", "soon", "0x10", "1_000", "²", "½", "٣", "9" * 5000]
    for text in [*wrong, str(variable.lowest - 1), str(variable.highest + 1)]:
        monkeypatch.setenv(variable, text)
        caplog.clear()
        assert variable.read() == variable.default
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert record.getMessage().startswith(f"{variable}={text} is not a whole number from {variable.lowest} to")
        assert record.getMessage().endswith(f"using {variable.default}")


@each_case("variable", DURATIONS, ids=str)
def test_a_duration_is_a_number_and_a_unit(
    variable: Duration, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    monkeypatch.delenv(variable, raising=False)
    assert variable.read_s() == variable.default_s
    for text, seconds in (("7d", 604_800), ("12h", 43_200), ("30m", 1_800), (" 45s ", 45), ("0s", 0)):
        monkeypatch.setenv(variable, text)
        assert variable.read_s() == seconds
    assert caplog.records == []
    for text in ("", "d", "-7d", "7 d", "7y", "1.5h", "٣d", "9" * 30 + "d"):
        monkeypatch.setenv(variable, text)
        caplog.clear()
        assert variable.read_s() == variable.default_s
        assert variable in caplog.text


@each_case(
    ("text", "is_on"),
    [
        *((word, True) for word in ("1", "true", "Yes", " ON ")),
        *((word, False) for word in ("", "0", "false", "off", "maybe")),
    ],
)
def test_four_words_mean_yes(monkeypatch: pytest.MonkeyPatch, text: str, is_on: bool) -> None:
    variable = DECLARED["OMNIGRAPH_EMBEDDINGS_MOCK"]
    assert isinstance(variable, Variable)
    monkeypatch.setenv(variable, text)
    assert variable.is_on() is is_on


# ---- The folder of what may be made again at any time


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
@pytest.mark.parametrize("which", ["", "spark"])
def test_a_cache_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, which: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "mine"))
    assert cache_folder("spark") is not None
    (tmp_path / "mine" / which).chmod(mode)
    assert cache_folder("spark") is None


def test_a_cache_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "mine"))
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert cache_folder("spark") is None


def test_the_cache_folder_follows_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
