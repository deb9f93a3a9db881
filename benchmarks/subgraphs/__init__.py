"""Counts of labelled subgraphs over a social network: the nine queries of LSQB, put to graph and relational systems."""
