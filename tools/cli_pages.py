"""The reference of the command line: a page per task, with synopsis, values, defaults and examples of every command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from click import Choice, Command, Parameter

from omnigraph.cli.main import app_with

#: Page → its title, and the commands (or groups of commands) on it. What stands nowhere is on the last page.
CHAPTERS = {
    "data": ("Create, load and export", ("init", "infer", "load", "export", "schema", "embed")),
    "query": ("Query and change", ("query", "shell", "show", "mutate", "explain", "lint", "alias", "blob")),
    "history": ("Branches and history", ("branch", "diff", "log", "commit", "changes", "snapshot")),
    "maintain": ("Maintain", ("optimize", "cleanup", "doctor", "verify", "repair", "recovery")),
    "serve": ("Servers and agents", ("graphs", "queries", "policy", "mcp", "login", "logout", "profile")),
    "other": ("Other commands", ()),
}
#: Command → example lines; a test parses each of them.
EXAMPLES: dict[str, list[str]] = json.loads((Path(__file__).parent / "cli_examples.json").read_text("utf-8"))
#: Flags that many commands share: explained once, on the first page.
SHARED = {
    "--server": "`NAME` or `URL` of a server, or the address of a graph behind one",
    "--graph": "which graph of the server; `--graph-id` where `--graph` is a switch",
    "--store": "the storage of the graph: a folder, `file://` or `s3://`",
    "--profile": "a scope of your [configuration](../../guide/cli-configuration.md)",
    "--as": "the actor that a write records; on a server the token decides",
    "--json": "print one JSON document, also for failures",
    "--yes": "consent without being asked",
    "--quiet": "no echo of the target, and no progress",
}
EXIT_CODES = {
    0: "success",
    1: "the command failed, or found errors",
    2: "the command line is wrong",
    3: "`load --on-error quarantine=FOLDER`: good records were loaded, and bad ones are in the folder",
    4: "`mutate --if-commit`: the head of the branch is another commit; nothing happened",
    75: "a concurrent write won; nothing happened, and it may be tried again",
    130: "Ctrl-C stopped the command; what it wrote before its commit is removed",
    141: "the reader of the output closed the pipe, as `head` does",
    143: "SIGTERM stopped it, in the same way",
}


def cli_pages(notice: str) -> Iterator[tuple[str, str]]:
    """The name and the text of every page."""
    placed: dict[str, list[tuple[str, Command]]] = {name: [] for name in CHAPTERS}
    for path, command in commands():
        words = path.split()
        placed[next((it for it, (_, first) in CHAPTERS.items() if words[1] in first), "other")].append((path, command))
    yield "index", "\n".join(_first_page(notice, placed))
    for name, (title, first) in CHAPTERS.items():
        # As the chapter lists them: what is used first comes first.
        order = {word: number for number, word in enumerate(first)}
        found = sorted(placed[name], key=lambda item: order.get(item[0].split()[1], 0))
        lines = [notice, "", f"# {title}", ""]
        if name == "serve":
            lines += _command("omnigraph-server", _server_command())
        for path, command in found:
            lines += _command(path, command)
        yield name, "\n".join(lines).rstrip() + "\n"


def commands() -> Iterator[tuple[str, Command]]:
    """Every command with its words, groups resolved, hidden ones left out."""
    yield from _below(app_with(), "omnigraph")


def _below(command: Command, path: str) -> Iterator[tuple[str, Command]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        if not child.hidden:
            yield from _below(child, f"{path} {name}")


def _server_command() -> Command:
    from omnigraph.server.main import serve

    return serve


def _first_page(notice: str, placed: dict[str, list[tuple[str, Command]]]) -> Iterator[str]:
    yield from (notice, "", "# Command line", "")
    yield "Results go to stdout, everything else to stderr. Every command takes the graph as its first argument, or by"
    yield "a flag:"
    yield ""
    yield "| Flag | Meaning |"
    yield "|---|---|"
    yield from (f"| `{flag}` | {meaning} |" for flag, meaning in SHARED.items())
    yield ""
    yield "These flags may stand before the command too. A flag that a command cannot use is an error. Without any of"
    yield "them the defaults of your configuration name the graph. `omnigraph --help` says what each command works on."
    yield ""
    yield "| Exit code | Meaning |"
    yield "|---|---|"
    yield from (f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    for name, (title, _) in CHAPTERS.items():
        yield from ("", f"## {title}", "", "| Command | |", "|---|---|")
        if name == "serve":
            yield f"| [`omnigraph-server`](serve.md#omnigraph-server) | {_summary(_server_command())} |"
        for path, command in placed[name]:
            yield f"| [`{path}`]({name}.md#{path.replace(' ', '-')}) | {_summary(command)} |"
    yield ""


def _summary(command: Command) -> str:
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".").replace("|", "&#124;")


def _command(path: str, command: Command) -> Iterator[str]:
    shown = [it for it in command.params if not getattr(it, "hidden", False) and it.name != "help"]
    arguments = [it for it in shown if it.param_type_name == "argument"]
    options = [it for it in shown if it.param_type_name == "option" and not set(it.opts) & set(SHARED)]
    shared = [flag for flag in SHARED for it in shown if flag in it.opts]
    words = [_name(it) if it.required else f"[{_name(it)}]" for it in arguments]
    words += [f"{it.opts[0]} {_value(it)}" for it in options if it.required]
    rest = ["[OPTIONS]"] if len(shown) > len(words) else []
    yield from (f"## `{path}`", "", (command.help or "").strip(), "")
    yield from ("```text", " ".join([path, *words, *rest]), "```", "")
    if arguments or options:
        yield "| Argument or flag | Meaning | Default |"
        yield "|---|---|---|"
        yield from (f"| {_cell(_name(it))} | {_meaning(it)} | |" for it in arguments)
        for it in options:
            spelling = ", ".join(sorted(it.opts, key=len))
            value = f" {_value(it)}" if it.metavar and not _choices(it) else ""
            yield f"| {_cell(spelling + value)} | {_meaning(it)} | {_default(it)} |"
        yield ""
    if shared:
        yield f"Also: {', '.join(f'`{flag}`' for flag in shared)} ([shared flags](index.md))."
        yield ""
    if examples := EXAMPLES.get(path):
        yield from ("```text", *examples, "```", "")


def _cell(text: str) -> str:
    """Code in a cell: a bar would end it, and a backslash before one is shown inside of backticks."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _name(parameter: Parameter) -> str:
    return parameter.metavar or (parameter.name or "").upper()


def _value(parameter: Parameter) -> str:
    choices = _choices(parameter)
    return "|".join(choices) if choices else parameter.metavar or ""


def _choices(parameter: Parameter) -> list[str]:
    return [str(choice) for choice in parameter.type.choices] if isinstance(parameter.type, Choice) else []


def _meaning(parameter: Parameter) -> str:
    text = (getattr(parameter, "help", None) or "").replace("|", "&#124;")
    choices = ", ".join(f"`{choice}`" for choice in _choices(parameter))
    required = "required" if parameter.required and parameter.param_type_name == "option" else ""
    return "; ".join(filter(None, (f"{choices}: {text}" if choices and text else choices or text, required)))


def _default(parameter: Parameter) -> str:
    value = parameter.to_info_dict()["default"]
    if value is None or value is False or parameter.required or value in ((), []):
        return ""
    return "on" if value is True else f"`{value}`"
