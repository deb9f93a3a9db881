"""`omnigraph-server`, also as `python -m omnigraph.server`: starts the server where its packages are installed."""

from __future__ import annotations

import sys
from typing import NoReturn

from omnigraph.core.extras import need_extra
from omnigraph.errors import MissingPackageError


def main() -> NoReturn:
    """Run the server and end the process with its exit code."""
    try:
        need_extra("server", "omnigraph-server")
    except MissingPackageError as error:
        sys.stderr.write(f"{error.message}\n")
        sys.exit(error.exit_code)
    from omnigraph.server.main import main as serve

    serve()


if __name__ == "__main__":
    main()
