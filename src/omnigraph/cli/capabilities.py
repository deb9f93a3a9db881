"""The target kind and the scope flags of every command: one table for parsing and `--help`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from types import MappingProxyType

from omnigraph.api.operations import OPERATIONS
from omnigraph.frozen import frozen


class Capability(StrEnum):
    """The kind of target that a command works on."""

    ANY = "any"
    SERVED = "served"
    DIRECT = "direct"
    CONTROL = "control"
    LOCAL = "local"


class ScopeFlag(StrEnum):
    """The flags that say what a command works on, in the order in which wrong ones are reported."""

    SERVER = "--server"
    CLUSTER = "--cluster"
    GRAPH = "--graph"
    STORE = "--store"
    AS = "--as"
    PROFILE = "--profile"


@frozen
class CommandRule:
    """The target kind and the scope flags of one command."""

    command: str
    capability: Capability
    flags: frozenset[ScopeFlag]

    @property
    def writes(self) -> bool:
        """Whether it changes a graph, or anything else that stays."""
        return ScopeFlag.AS in self.flags or self.command in _WRITE_WITHOUT_ACTOR

    def first_refused(self, given: Iterable[ScopeFlag]) -> ScopeFlag | None:
        """The flag to complain about, when some cannot be used."""
        refused = set(given) - self.flags
        return next((flag for flag in ScopeFlag if flag in refused), None)

    def refusal(self, flag: ScopeFlag) -> str:
        """Why the command does not take a flag, and what to give instead."""
        return f"`{self.command}` does not take {flag}: {_reason(self, flag)}"


#: What writes, but records no actor.
_WRITE_WITHOUT_ACTOR = frozenset({"init", "cleanup", "verify", "demo", "mcp", "login", "logout"})


def _reason(rule: CommandRule, flag: ScopeFlag) -> str:
    if rule.command == "alias":
        return "an alias says itself which graph it asks"
    if not rule.flags:
        return "it works on no existing graph"
    if flag is ScopeFlag.AS:
        return "it records no actor"
    if rule.capability is Capability.SERVED:
        return "it asks a whole server: give --server NAME or URL"
    if rule.capability is Capability.ANY:
        return "the data of a graph is reached with --server, or --store for its storage"
    if rule.capability is Capability.CONTROL:
        return "it looks at what a server would be configured with: give --config FILE"
    return "it works on the storage of one graph: give its path or s3:// address"


_SERVER, _CLUSTER, _GRAPH, _STORE, _AS, _PROFILE = ScopeFlag
_READS = (_SERVER, _GRAPH, _STORE, _PROFILE)
_WRITES = (*_READS, _AS)
_STORAGE = (_CLUSTER, _GRAPH, _STORE, _PROFILE)


def _rules() -> Iterator[CommandRule]:
    rows: list[tuple[Capability, str, tuple[ScopeFlag, ...]]] = [
        (Capability.ANY, "query, explain, show, branch list, export, blob get", _READS),
        (Capability.ANY, "blob stat, commit list, commit show, commit changes", _READS),
        (Capability.ANY, "changes poll, changes baseline, diff, log, schema show", _READS),
        (Capability.ANY, "mutate, shell, load, ingest, branch create, branch delete", _WRITES),
        (Capability.ANY, "branch merge, schema apply", _WRITES),
        (Capability.SERVED, "graphs list", (_SERVER, _PROFILE)),
        (Capability.DIRECT, "init", ()),
        (Capability.DIRECT, "cleanup, doctor, verify, recovery list, lint", _STORAGE),
        (Capability.DIRECT, "optimize, repair", (*_STORAGE, _AS)),
        (Capability.DIRECT, "schema plan, schema diff", (_STORE, _PROFILE)),
        (Capability.DIRECT, "embed, mcp", (_STORE, _AS, _PROFILE)),
        (Capability.CONTROL, "policy validate, policy test, policy explain", (_GRAPH,)),
        (Capability.SERVED, "queries list", (_SERVER, _GRAPH, _PROFILE)),
        (Capability.CONTROL, "queries validate", (_GRAPH, _STORE)),
        (Capability.LOCAL, "infer, alias, demo, login, logout, completion", ()),
        (Capability.LOCAL, "profile list, profile show, version", ()),
    ]
    for entry in OPERATIONS.values():
        if entry.command is not None:
            rows.append((Capability.ANY, entry.command.name, _WRITES if entry.cost.writes else _READS))
    for capability, commands, flags in rows:
        for command in commands.split(", "):
            yield CommandRule(command, capability, frozenset(flags))


#: The rule of every command, by its name.
RULES = MappingProxyType({rule.command: rule for rule in _rules()})

_MEANINGS = {
    Capability.ANY: "a graph behind a server, or its storage",
    Capability.SERVED: "a server",
    Capability.DIRECT: "the storage of a graph, never through a server",
    Capability.CONTROL: "what servers serve, and to whom",
    Capability.LOCAL: "this machine only",
}
#: Commands that are not shown, as in the list of commands.
_HIDDEN = {"ingest"}


def legend() -> str:
    """The commands per capability, as `--help` ends."""
    lines = ["What commands work on:"]
    for capability in Capability:
        names = [
            rule.command for rule in RULES.values() if rule.capability is capability and rule.command not in _HIDDEN
        ]
        if names:
            lines.append(f"  {capability:<8} {_MEANINGS[capability]}:")
            lines += [f"           {line}" for line in _wrapped(_grouped(names))]
    # The first character of a paragraph keeps its line breaks.
    return "\b\n" + "\n".join(lines)


def _grouped(names: list[str]) -> list[str]:
    """`branch create` and `branch list` as `branch create|list`."""
    groups: dict[str, list[str]] = {}
    for name in names:
        group, _, rest = name.partition(" ")
        groups.setdefault(group, []).append(rest)
    return [f"{group} {'|'.join(rest)}".strip() for group, rest in groups.items()]


def _wrapped(names: list[str], width: int = 66) -> list[str]:
    lines = [""]
    for name in names:
        joined = f"{lines[-1]}, {name}" if lines[-1] else name
        if len(joined) > width:
            lines[-1] += ","
            lines.append(name)
        else:
            lines[-1] = joined
    return lines
