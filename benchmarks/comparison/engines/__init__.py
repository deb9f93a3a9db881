"""One module per system: how it loads the graph, and how each workload is said in its language."""
