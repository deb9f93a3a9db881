"""Routes of the server, one module per subject."""
