"""A client loads neither Spark nor the server."""

from __future__ import annotations

import json
import subprocess
import sys

PROBE = """
import json, pkgutil, sys
from importlib import import_module
import omnigraph.client
for module in pkgutil.iter_modules(omnigraph.client.__path__):
    import_module(f"omnigraph.client.{module.name}")
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_a_client_loads_neither_spark_nor_the_server() -> None:
    run = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    loaded = set(json.loads(run.stdout))
    assert "httpx" in loaded, "the probe sees what is loaded"
    assert loaded & {"pyspark", "py4j", "starlette", "uvicorn", "cedarpy", "mcp"} == set()
