"""What the benchmark of the server is made of."""
