"""Ways to damage a file, chosen by a seed."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

KINDS = ("flip", "flip", "flip_many", "zero", "cut", "empty", "random", "swap", "grow", "gone")


def stored_files(root: Path) -> list[Path]:
    """All files of a graph that mean something, in a fixed order of kinds."""
    return sorted(
        path for path in root.rglob("*") if path.is_file() and not path.name.endswith("lock")
    )


def harm(path: Path, kind: str, random: Random, others: list[Path]) -> bool:
    """Damage one file; whether its bytes are different now."""
    before = path.read_bytes()
    data = bytearray(before)
    if kind == "gone":
        path.unlink()
        return True
    if kind == "flip" and data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == "flip_many" and data:
        for _ in range(20):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == "zero" and data:
        begin = random.randrange(len(data))
        end = min(len(data), begin + random.choice((4, 64, 4096)))
        data[begin:end] = bytes(end - begin)
    elif kind == "cut" and data:
        del data[random.randrange(len(data)) :]
    elif kind == "empty":
        data.clear()
    elif kind == "random":
        data = bytearray(random.randbytes(len(data)))
    elif kind == "swap":
        alike = [other for other in others if other.suffix == path.suffix and other != path]
        if alike:
            data = bytearray(random.choice(alike).read_bytes())
    elif kind == "grow":
        data += random.randbytes(random.choice((1, 8, 300)))
    path.unlink()
    path.write_bytes(data)
    os.utime(path, (0, 0))
    return bytes(data) != before
