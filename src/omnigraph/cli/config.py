"""The operator's configuration: servers, scopes, aliases and credentials."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from omnigraph.cli.console import print_warning
from omnigraph.cli.rows import RowFormat
from omnigraph.cli.tables import CellLayout
from omnigraph.client.addresses import BEARER_TOKEN, owner_of
from omnigraph.core.env_settings import Variable
from omnigraph.errors import BadRequestError, InputFileError
from omnigraph.frozen import frozen

if TYPE_CHECKING:
    from omnigraph.core.yaml_files import YamlDocument, YamlValue


# ---- The user configuration
#
# It is `config.yaml` in the folder that `OMNIGRAPH_HOME` names, else in `~/.omnigraph`. Without the file everything
# is empty, and nothing that reads YAML is loaded.


_HOME = Variable(
    "OMNIGRAPH_HOME",
    "The folder of `config.yaml` and of the tokens that `omnigraph login` stores.",
    default="`~/.omnigraph`",
    values="a folder",
)
_PROFILE = Variable(
    "OMNIGRAPH_PROFILE", "The profile of the configuration that holds when no flag names a graph.", values="a name"
)
_Choice = TypeVar("_Choice", bound=StrEnum)
_FILE = "config.yaml"
_CODE = "config"
#: Names become parts of variable names and of messages.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
#: A cell has to hold a letter and an ellipsis at least.
_MIN_COLUMN_WIDTH = 2


@frozen(kw_only=True)
class Profile:
    """A named scope. Whether it is exactly one of the three is looked at when it is used."""

    server: str | None = None
    cluster: str | None = None
    store: str | None = None
    default_graph: str | None = None


@frozen(kw_only=True)
class Defaults:
    """The default values of flags."""

    output: RowFormat | None = None
    table_max_column_width: int | None = None
    table_cell_layout: CellLayout | None = None
    server: str | None = None
    store: str | None = None
    default_graph: str | None = None


@frozen(kw_only=True)
class Alias:
    """A personal name of a stored read query."""

    server: str
    graph: str | None = None
    query: str
    args: tuple[str, ...] = ()
    params: Mapping[str, object] = field(default_factory=dict)
    format: RowFormat | None = None


@frozen(kw_only=True)
class OperatorConfig:
    """Everything that the file says."""

    actor: str | None = None
    servers: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    defaults: Defaults = field(default_factory=Defaults)
    aliases: Mapping[str, Alias] = field(default_factory=dict)


def active_profile() -> str | None:
    """The profile that the environment chooses."""
    return _PROFILE.text() or None


def operator_home() -> Path:
    """The folder of the configuration and the credentials; it need not exist."""
    chosen = _HOME.text()
    # Unlike `Path.home`, this goes on for a user without a home, as in some containers.
    return Path(chosen or os.path.expanduser("~/.omnigraph"))


def config_path() -> Path:
    """The path of the configuration, which may not exist."""
    return operator_home() / _FILE


def read_operator_config() -> OperatorConfig:
    """Read the configuration; it is empty when there is no file.

    Unknown keys are passed over with a warning: the file may be shared with a newer release.

    Raises:
        ConfigurationError: the file is malformed; all findings are listed with their places.
        InputFileError: it cannot be read.
    """
    path = config_path()
    if not os.path.exists(path):  # false also where one may not look
        return OperatorConfig()
    from omnigraph.core.yaml_files import YamlDocument

    document = YamlDocument.read(path, code=_CODE)
    config = _config(document, path.parent)
    document.raise_errors()
    for warning in document.warnings:
        print_warning(warning.render())
    return config


def _config(document: YamlDocument, folder: Path) -> OperatorConfig:
    if document.root.is_absent:
        return OperatorConfig()
    sections = _members(
        document.root, "the configuration", ("operator", "servers", "clusters", "profiles", "defaults", "aliases")
    )
    operator = _section(sections, "operator", ("actor",))
    return OperatorConfig(
        actor=_text(operator, "actor"),
        servers={
            name: url
            for name, value in _named(sections, "servers").items()
            if (url := _server_url(value, f"server `{name}`")) is not None
        },
        clusters={
            name: root
            for name, value in _named(sections, "clusters").items()
            if (root := _required(value, f"cluster `{name}`", "root")) is not None
        },
        profiles={
            name: _profile(value, f"profile `{name}`", folder) for name, value in _named(sections, "profiles").items()
        },
        defaults=_defaults(sections, folder),
        aliases={
            name: alias
            for name, value in _named(sections, "aliases").items()
            if (alias := _alias(value, f"alias `{name}`")) is not None
        },
    )


def _server_url(value: YamlValue, what: str) -> str | None:
    from omnigraph.client.addresses import server_url

    members = _members(value, what, ("url",), required=("url",))
    text = _text(members, "url")
    if text is None:
        return None
    try:
        return server_url(text)
    except ValueError as error:
        members["url"].error(f"`url` of {what} {error}")
        return None


def _required(value: YamlValue, what: str, key: str) -> str | None:
    return _text(_members(value, what, (key,), required=(key,)), key)


def _profile(value: YamlValue, what: str, folder: Path) -> Profile:
    members = _members(value, what, _keys(Profile))
    return Profile(
        server=_text(members, "server"),
        cluster=_text(members, "cluster"),
        store=_store(members, folder),
        default_graph=_text(members, "default_graph"),
    )


def _defaults(sections: Mapping[str, YamlValue], folder: Path) -> Defaults:
    members = _section(sections, "defaults", _keys(Defaults))
    for other in ("server", "default_graph"):
        if "store" in members and other in members:
            members[other].key_error(f"`{other}` does not go with `store` in `defaults`")
    width = None
    if (value := members.get("table_max_column_width")) is not None:
        width = value.integer("`table_max_column_width`")
        if width is not None and width < _MIN_COLUMN_WIDTH:
            value.error(f"`table_max_column_width` is {_MIN_COLUMN_WIDTH} at least")
    return Defaults(
        output=_choice(members, "output", RowFormat),
        table_max_column_width=width,
        table_cell_layout=_choice(members, "table_cell_layout", CellLayout),
        server=_text(members, "server"),
        store=_store(members, folder),
        default_graph=_text(members, "default_graph"),
    )


def _alias(value: YamlValue, what: str) -> Alias | None:
    members = _members(value, what, _keys(Alias), required=("server", "query"))
    server, query = _text(members, "server"), _text(members, "query")
    listed = members["args"].items(f"`args` of {what}") if "args" in members else []
    args = [item.text(f"an argument of {what}") for item in listed]
    params = members["params"].members(f"`params` of {what}") if "params" in members else {}
    row_format = _choice(members, "format", RowFormat)
    if server is None or query is None:
        return None
    return Alias(
        server=server,
        query=query,
        graph=_text(members, "graph"),
        args=tuple(name for name in args if name is not None),
        params={name: item.plain() for name, item in params.items()},
        format=row_format,
    )


def _keys(section: type[Defaults | Profile | Alias]) -> tuple[str, ...]:
    """The keys of a section: the fields of its class."""
    return tuple(item.name for item in fields(section))


def _section(sections: Mapping[str, YamlValue], name: str, known: Collection[str]) -> dict[str, YamlValue]:
    value = sections.get(name)
    return {} if value is None or value.is_absent else _members(value, f"`{name}`", known)


def _named(sections: Mapping[str, YamlValue], name: str) -> dict[str, YamlValue]:
    """The members of a section whose keys the person chose."""
    value = sections.get(name)
    if value is None or value.is_absent:
        return {}
    members = value.members(f"`{name}`")
    for key, member in members.items():
        if not _NAME.fullmatch(key):
            member.key_error(
                f"`{key}` is not a valid name",
                "a name is made of letters, digits, `_`, `-` and `.`, and begins with a letter or a digit",
            )
    return members


def _members(
    value: YamlValue, what: str, known: Collection[str], *, required: Collection[str] = ()
) -> dict[str, YamlValue]:
    """The known members; the others are passed over with a warning."""
    members = value.members(what, required=required)
    for name in [name for name in members if name not in known]:
        members.pop(name).key_warning(f"`{name}` is not a key of {what}; it is ignored", known)
    return members


def _text(members: Mapping[str, YamlValue], name: str) -> str | None:
    value = members.get(name)
    return None if value is None else value.text(f"`{name}`")


def _choice(members: Mapping[str, YamlValue], name: str, choices: type[_Choice]) -> _Choice | None:
    text = _text(members, name)
    if text is None or text in list(choices):
        return None if text is None else choices(text)
    members[name].error(f"`{name}` is one of {', '.join(choices)}, not `{text}`")
    return None


def _store(members: Mapping[str, YamlValue], folder: Path) -> str | None:
    """An address as it is, a path as one below the folder of the file."""
    text = _text(members, "store")
    if text is None or "://" in text:
        return text
    return str(folder / Path(text).expanduser())


# ---- Stored server tokens


_CREDENTIALS_FILE = "credentials"
_OWN_TOKEN = Variable(
    "OMNIGRAPH_TOKEN_",
    "With the name of a server behind it: the token for this server; `OMNIGRAPH_TOKEN_LAB` for `lab`.",
    values="a token",
)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def credentials_path() -> Path:
    """The path of the tokens, which may not exist."""
    return operator_home() / _CREDENTIALS_FILE


def token_variable(server: str) -> str:
    """The variable that holds the token of a server: `OMNIGRAPH_TOKEN_LAB` for `lab`."""
    return _OWN_TOKEN + re.sub(r"[^A-Z0-9]", "_", server.upper())


def find_token(
    url: str,
    name: str | None,
    servers: Mapping[str, str],
    environment: Mapping[str, str],
    stored: Callable[[], Mapping[str, str]],
) -> str | None:
    """The token for an address: of its own server from the environment, then from the file, then the common one.

    `name` is the server when it was addressed by name. The token of a server goes nowhere else. `stored` reads the
    file and is called only when it is needed.

    Raises:
        BadRequestError: a variable could be meant for two servers.
    """
    owner = name if name is not None else owner_of(url, servers)
    if owner is not None:
        variable = token_variable(owner)
        if token := environment.get(variable):
            sharing = [other for other in servers if token_variable(other) == variable]
            if len({servers[other] for other in sharing}) > 1:
                raise BadRequestError(
                    f"{variable} could be the token of any of the servers {', '.join(sharing)}: rename all but one"
                )
            return token
        if token := stored().get(owner):
            return token
    return environment.get(BEARER_TOKEN) or None


def read_credentials() -> dict[str, str]:
    """The stored tokens by server; none when there is no file.

    Raises:
        BadRequestError: others may read the file, or it is damaged.
        InputFileError: it cannot be read.
    """
    path = credentials_path()
    try:
        with path.open(encoding="utf-8") as file:
            # The mode of the open file, not of the path: the file cannot be exchanged in between.
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise BadRequestError(f"{path} holds tokens, and others than you may use it: run `chmod 600 {path}`")
            text = file.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputFileError(str(path), error.strerror or str(error)) from error
    except UnicodeDecodeError:
        text = ""
    try:
        tokens = json.loads(text)["tokens"]
    except (ValueError, RecursionError, LookupError, TypeError):
        tokens = None
    if not isinstance(tokens, dict) or not all(isinstance(t, str) for t in tokens.values()):
        # Nothing of the content is shown: it may hold a token.
        raise BadRequestError(f"{path} is damaged: delete it, and log in again")
    return tokens


def store_token(server: str, token: str) -> None:
    """Keep the token of a server.

    Raises:
        BadRequestError: the token is none, or what is stored cannot be read.
        InputFileError: the file cannot be written.
    """
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadRequestError("a token is one word of printable ASCII characters")
    _write(read_credentials() | {server: token})


def forget_token(server: str) -> bool:
    """Remove the token of a server; says whether there was one."""
    tokens = read_credentials()
    if tokens.pop(server, None) is None:
        return False
    _write(tokens)
    return True


def _write(tokens: Mapping[str, str]) -> None:
    """Replace the file at once: it is never half-written, and never readable for others."""
    path = credentials_path()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            unfinished.unlink()
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"tokens": dict(sorted(tokens.items()))}, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise InputFileError(str(path), error.strerror or str(error)) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
