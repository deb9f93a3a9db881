"""Query text, its tree, and the tree as text again."""
