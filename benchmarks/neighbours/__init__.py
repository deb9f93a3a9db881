"""The nearest of many vectors, with and without filters, in OmniGraph and in LanceDB."""
