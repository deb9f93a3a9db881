"""The `omnigraph` executable, also as `python -m omnigraph`: a process that runs one command, and should start fast."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType

#: Modules and their classes stay until the process ends: looking for garbage among them is a tenth of a short command.
_COLLECT_EVERY = 200_000


def main() -> None:
    """Run the command of this process, and end it with the exit code."""
    # Until the command itself takes interrupts. Where they are ignored, as by `nohup`, they stay so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    gc.set_threshold(_COLLECT_EVERY, 20, 20)
    from omnigraph.cli.main import main as run
    from omnigraph.core.extras import leave_out

    leave_out("pandas")
    # httpx has a command of its own, and imports what colours its output.
    leave_out("pygments")
    try:
        run()
    finally:
        # Python looks for garbage once more before it ends, among all that ends with the process anyway.
        gc.freeze()


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End a command that is being imported: an exception would be lost in the callbacks that every import has."""
    os.write(2, b"cancelled, nothing was written\n")
    os._exit(130)


if __name__ == "__main__":
    main()
