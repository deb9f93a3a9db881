from __future__ import annotations

import functools
import gc
import os
import random
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import coverage
import pytest
from hypothesis import HealthCheck, settings

from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema_file
from support.examples import THOROUGH
from support.memory_folder import make_memory_folder

#: Settings of the person or machine that runs the tests: the product, its terminal, object stores, proxies, Spark.
FOREIGN = (
    "PYTHONDONTWRITEBYTECODE",
    "OMNIGRAPH_",
    "AWS_",
    "SPARK_",
    "PYSPARK_",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "PY_COLORS",
    "TTY_",
    "TERM",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
)
#: What such settings say to the tests themselves.
OURS = ("OMNIGRAPH_TEST_",)

# The tests see none of them unless they set them, so that they mean the same on every machine.
for _name in list(os.environ):
    if _name.upper().startswith(FOREIGN) and not _name.startswith(OURS):
        del os.environ[_name]

# A run in the background ignores interrupts, and so would everything that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Otherwise every process that a test starts compiles the product anew, and every run all tests.
sys.dont_write_bytecode = False

os.environ["OMNIGRAPH_HOME"] = str(Path(__file__).parent / "no-operator")
# Recording a class-data archive takes longer than all starts of a run save.
os.environ["OMNIGRAPH_SPARK_ARCHIVE"] = "off"
# Killed processes lose nothing that they gave to the operating system; what a power cut needs is tested where it is
# asked for.
os.environ["OMNIGRAPH_DURABILITY"] = "process"

if "PYTEST_XDIST_WORKER" in os.environ:
    # Processes that tests start are not measured: starting them, and Spark's tasks in them, would take far longer.
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)

TESTS = Path(__file__).parent
GOLDEN = TESTS / "unit" / "lang" / "golden"

# Property tests are deterministic in CI and never fail for being slow on a busy machine.
settings.register_profile(
    "omnigraph", deadline=None, derandomize=True, max_examples=12, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(THOROUGH, settings.get_profile("omnigraph"), max_examples=100)
settings.load_profile("omnigraph")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files in memory until the run ends; `--basetemp` says where else, and keeps them."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or config.option.basetemp or (folder := make_memory_folder()) is None:
        return
    config.option.basetemp = str(folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


#: Files whose tests are few and long. A worker takes whole files, and whoever got one of these last would keep the
#: others waiting.
LONG = (
    "guards/test_documentation.py",
    "laws/",
    "faults/",
    "guards/test_structure.py",
    "surfaces/cli/test_commands.py",
    "surfaces/page/",
    "surfaces/server/test_stopped.py",
    "unit/spark/",
    "behaviour/spark/",
    "behaviour/s3/",
    "behaviour/branches/test_constraints.py",
    "behaviour/branches/test_merge_storage.py",
    "behaviour/folders/",
    "behaviour/mutations/test_conditions.py",
    "behaviour/releases/",
    "behaviour/search/test_relevance.py",
    "behaviour/loads/test_bad_records.py",
    "behaviour/loads/test_sources.py",
    "behaviour/graphs/test_long_lives.py",
    "behaviour/retention/",
    "behaviour/maintenance/",
    "behaviour/changes/test_net_diff.py",
    "behaviour/embedding/test_graph.py",
)


#: Tests that repeat themselves hundreds of times over code which the others cover: measuring them doubles their time.
UNMEASURED = ("laws/", "faults/races/", "behaviour/search/", "behaviour/retention/test_random_histories.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Pause the measuring of coverage where it tells nothing new."""
    measuring = coverage.Coverage.current()
    if measuring is None or not _path(item).startswith(UNMEASURED):
        return (yield)
    measuring.stop()
    try:
        return (yield)
    finally:
        measuring.start()


def _path(item: pytest.Item) -> str:
    return _below_tests(item.path)


@functools.cache
def _below_tests(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()


#: `random:SEED` runs the tests in a random order that the seed decides: files first, then the tests of each file.
ORDER = "OMNIGRAPH_TEST_ORDER"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that use Spark first, then long ones, then those with many tests, in their own order; or all at random.

    One after the other, they find the Python workers of Spark alive, which end after a minute without work.
    """
    if wanted := os.environ.get(ORDER):
        _shuffle(items, wanted)
        return
    counts = Counter(item.path for item in items)
    spark = {it.path for it in items if "spark" in getattr(it, "fixturenames", ()) or "/spark/" in _path(it)}

    def order(item: pytest.Item) -> tuple[bool, bool, int, Path]:
        return item.path not in spark, not _path(item).startswith(LONG), -counts[item.path], item.path

    items.sort(key=order)


def _shuffle(items: list[pytest.Item], wanted: str) -> None:
    """The tests of a file stay together, because a worker takes whole files and fixtures belong to a file."""
    kind, _, seed = wanted.partition(":")
    if kind != "random" or not seed.isdecimal():
        # Every worker has to find the same order, so the seed cannot be made up here.
        raise pytest.UsageError(f"{ORDER}={wanted!r} is not of the form random:SEED")
    chance = random.Random(int(seed))
    chance.shuffle(items)
    files = list(dict.fromkeys(item.path for item in items))
    items.sort(key=lambda item: files.index(item.path))


def pytest_collection_finish() -> None:
    """Some million objects of the collection live until the end: no garbage is looked for among them again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say whether the explorer page was tested: a machine without a browser skips all of its tests."""
    ran = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    if pages := sum("test_explorer_page" in report.nodeid for report in ran):
        terminalreporter.write_line(f"explorer page: {pages} tests ran in a browser")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture(scope="session")
def reading() -> Catalog:
    """The catalog of the reading graph."""
    return compile_schema_file(GOLDEN / "reading.pg").catalog


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """Compare a text with a golden file, or rewrite the file with --update-golden."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: run pytest --update-golden and read what it wrote"
        assert text == path.read_text(encoding="utf-8")

    return check
