"""Tokens of servers: the file that `login` writes, and which token goes to which server."""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from omnigraph.cli.operator_config import operator_home
from omnigraph.cli.urls import owner_of
from omnigraph.errors import BadRequestError, InputFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_FILE = "credentials"
_OWN_TOKEN = "OMNIGRAPH_TOKEN_"
_ANY_TOKEN = "OMNIGRAPH_BEARER_TOKEN"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def credentials_path() -> Path:
    """Where the tokens are, or would be."""
    return operator_home() / _FILE


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
    return environment.get(_ANY_TOKEN) or None


def read_credentials() -> dict[str, str]:
    """The stored tokens by server; none when there is no file.

    Raises:
        BadRequestError: others may read the file, or it is damaged.
        InputFileError: it cannot be read.
    """
    path = credentials_path()
    try:
        with path.open(encoding="utf-8") as file:
            # The open file is asked, not the path: nobody can exchange it in between.
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise BadRequestError(
                    f"{path} holds tokens, and others than you may use it: run `chmod 600 {path}`"
                )
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
