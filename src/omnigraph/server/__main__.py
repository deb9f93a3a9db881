"""`python -m omnigraph.server`."""

from omnigraph.server.main import main

if __name__ == "__main__":
    main()
