"""`python -m omnigraph` is the same as `omnigraph`."""

from omnigraph.cli.main import main

main()
