"""The `omnigraph` executable, also as `python -m omnigraph`: a process that runs one command, and should start fast."""

from __future__ import annotations

import gc
import sys

#: Modules and their classes stay until the process ends: looking for garbage among them is a tenth of a short command.
_COLLECT_EVERY = 200_000


def main() -> None:
    """Run the command of this process, and end it with the exit code."""
    try:
        gc.set_threshold(_COLLECT_EVERY, 20, 20)
        from omnigraph.cli.main import main as run
        from omnigraph.core.extras import leave_out

        leave_out("pandas")
        # httpx has a command of its own, and imports what colours its output.
        leave_out("pygments")
    except KeyboardInterrupt:
        # From here on the command itself takes interrupts.
        sys.stderr.write("cancelled, nothing was written\n")
        sys.exit(130)
    try:
        run()
    finally:
        # Python looks for garbage once more before it ends, among all that ends with the process anyway.
        gc.freeze()


if __name__ == "__main__":
    main()
