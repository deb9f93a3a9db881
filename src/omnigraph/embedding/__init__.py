"""Embeddings: providers, the job over files, and the job over rows of a graph.

Owns: the client with retries and deadlines, settings of providers, which rows need a vector, kept vectors. Keys never
reach logs or disks. Start reading at `contract`, then `row_job`.
"""
