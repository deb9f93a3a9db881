"""The files that people copy to their machines."""

from __future__ import annotations

import importlib.util
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from starlette.testclient import TestClient

from omnigraph.errors import BadRequestError
from omnigraph.server.config import read_config
from omnigraph.server.main import chosen_address, is_reached_by_others, listening_socket, parse_bind, serve
from support.servers import client_of, open_server
from support.subtests import each_case

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def test_everything_that_the_image_copies_is_there():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    included = re.findall(r'"(\w+)" = "omnigraph/', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert set(included) <= set(copied), "the wheel needs them"


@pytest.mark.parametrize("name", ["Containerfile", "omnigraph-server.service"])
def test_the_server_is_started_with_flags_that_it_has(name):
    text = (DEPLOY / name).read_text(encoding="utf-8")
    known = {flag for item in serve.params for flag in item.opts}
    started = re.findall(r"^(?:ExecStart|CMD)[= ].*config.*$", text, re.MULTILINE)
    assert started
    assert {flag for line in started for flag in re.findall(r"--[a-z-]+", line)} <= known


def test_the_example_configuration_is_read(tmp_path):
    for name in ("papers-policy.yaml", "server-policy.yaml"):
        (tmp_path / name).write_text("version: 1\n", encoding="utf-8")
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "all.gq").write_text(
        "query all() { match { $p: Paper } return { $p.title } }", encoding="utf-8"
    )
    (tmp_path / "server.yaml").write_text((DEPLOY / "server.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    (graph,) = read_config(tmp_path / "server.yaml").graphs
    assert (graph.graph_id, graph.store) == ("papers", "/var/lib/omnigraph/papers.omni")


@each_case("text", ["", "8080", ":8080", "host:", "host:x", "host:70000", "host:-1"])
def test_an_address_to_listen_at_is_host_and_port(text):
    with pytest.raises(BadRequestError):
        parse_bind(text)


def test_an_address_that_is_taken_or_not_of_this_machine_is_a_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadRequestError, match=f"another process listens at 127.0.0.1:{port}: .* with --port$"):
            listening_socket("127.0.0.1", port)
    with pytest.raises(BadRequestError, match=r"^192.0.2.1:0 is not an address of this machine: .* with --host$"):
        listening_socket("192.0.2.1", 0)


@each_case(
    ("host", "is_reached"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("graphs.localhost", True), ("0.0.0.0", True)],
)
def test_a_name_below_localhost_may_be_reached_by_others(host, is_reached):
    assert is_reached_by_others(host) is is_reached


def test_a_host_or_a_port_alone_keeps_the_other_one(monkeypatch):
    assert chosen_address(None, None, 9000) == ("127.0.0.1", 9000)
    monkeypatch.setenv("OMNIGRAPH_BIND", "0.0.0.0:7000")
    assert chosen_address(None, "[::1]", None) == ("::1", 7000)
    assert chosen_address("127.0.0.1:1", None, None) == ("127.0.0.1", 1)
    with pytest.raises(click.BadParameter, match="give --bind HOST:PORT, or --host and --port"):
        chosen_address("127.0.0.1:1", None, 2)


# ---- rights of the server on its machine


def unit() -> dict[str, list[str]]:
    """The settings of the service, by name; one may be given several times."""
    found: dict[str, list[str]] = {}
    text = (DEPLOY / "omnigraph-server.service").read_text(encoding="utf-8")
    for line in text.partition("[Service]")[2].partition("[Install]")[0].splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_the_service_has_no_rights_that_it_does_not_need():
    wanted = {
        **{"User": "omnigraph", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "ProtectSystem": "strict"},
        **{"ProtectProc": "invisible", "SystemCallArchitectures": "native", "UMask": "0077", "LimitCORE": "0"},
        **{"StateDirectoryMode": "0700", "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX"},
        **dict.fromkeys(("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateUsers"), "yes"),
        **dict.fromkeys(("ProtectKernelModules", "ProtectKernelTunables", "RestrictNamespaces"), "yes"),
        "RestrictSUIDSGID": "yes",
    }
    settings = unit()
    assert {name: settings.get(name) for name in wanted} == {name: [value] for name, value in wanted.items()}


def test_the_service_makes_ordinary_system_calls_within_bounds():
    settings = unit()
    assert settings["SystemCallFilter"] == ["@system-service", "~@privileged @obsolete"]
    assert {"MemoryMax", "TasksMax", "LimitNOFILE"} <= set(settings)
    assert "MemoryDenyWriteExecute" not in settings, "the Java runtime compiles while it runs"
    assert settings["ReadWritePaths"] == ["/var/lib/omnigraph"]


def test_the_container_does_not_run_as_root():
    lines = (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users, "without one it is root"
    user, _, group = users[-1].partition(":")
    assert int(user) > 0, "by number, so that an orchestrator can tell"
    assert int(group) > 0
    after = lines[[line.startswith("USER ") for line in lines].index(True) :]
    assert not any(line.startswith(("RUN", "COPY", "ADD")) for line in after)
    assert "--cap-drop all" in "\n".join(lines)


def test_a_report_of_a_weakness_has_a_place():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for heading in ("## Report a weakness", "## Supported versions", "## What is in scope"):
        assert heading in text
    assert "private vulnerability report" in text
    assert "@" not in text, "no address that nobody reads"


# ---- advisories


@pytest.fixture
def audit():
    spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(name, *advisories):
    vulns = [{"id": text, "fix_versions": ["2.0"], "aliases": []} for text in advisories]
    return {"name": name, "version": "1.0", "vulns": vulns}


@pytest.mark.parametrize(
    ("packages", "code", "told"),
    [
        ([checked("a"), checked("b")], 0, "2 of 2 pinned packages were checked: 0 advisories"),
        ([checked("a"), checked("b", "CVE-1")], 1, "b 1.0: CVE-1, fixed in 2.0"),
        ([checked("a"), {"name": "b", "skip_reason": "not found"}], 3, "1 could not be checked"),
        ([checked("a", "CVE-1"), {"name": "b", "skip_reason": "x"}], 1, "1 of 2 pinned packages"),
        ([], 3, "0 of 0"),
    ],
)
def test_an_audit_never_says_that_all_is_well_without_having_looked(audit, capsys, packages, code, told):
    assert audit.report({"runtime": packages}) == code
    assert told in capsys.readouterr().out


def test_an_audit_that_reaches_nothing_says_so(audit, tmp_path, capsys, monkeypatch):
    tool = tmp_path / "pip-audit"
    tool.write_text("#!/bin/sh\necho 'no route to host' >&2\nexit 1\n", encoding="utf-8")
    tool.chmod(0o700)
    monkeypatch.setattr(audit, "installed", lambda: tool)
    assert audit.main() == audit.UNCHECKED
    assert "nothing was checked: the advisories cannot be reached: no route" in capsys.readouterr().out


# ---- A server in front of damaged files: every answer is the envelope of failures


PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.bio } }"


class PanicException(BaseException):  # named as the one that cannot be imported
    """Stands for the class that extension modules make."""


PanicException.__module__ = "pyo3_runtime"


@pytest.fixture
def damaged(uri: str) -> Iterator[TestClient]:
    for file in Path(uri).glob("nodes/*/data/*.lance"):
        file.write_bytes(bytes(file.stat().st_size))
    with open_server(uri) as service, client_of(service) as client:
        yield client


def test_a_damaged_file_is_a_storage_failure_in_json(damaged: TestClient) -> None:
    answer = damaged.post("/graphs/default/query", json={"query": PEOPLE})
    assert answer.status_code == 500
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    assert (body["kind"], body["code"]) == ("storage", "internal")
    assert "omnigraph verify" in body["error"]


def test_a_panic_in_storage_is_damage_and_elsewhere_an_internal_failure_in_json(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr("lance.LanceDataset.scanner", panic)
    answer = client.post("/graphs/default/query", json={"query": PEOPLE})
    assert (answer.status_code, answer.json()["failure"]) == (500, "permanent")
    assert "damage" in answer.json()
    monkeypatch.setattr("omnigraph.graph.reads.execute", panic)
    answer = client.post("/graphs/default/query", json={"query": PEOPLE})
    assert (answer.status_code, answer.json()["kind"]) == (500, "internal")
