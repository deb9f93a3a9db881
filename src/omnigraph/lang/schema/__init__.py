"""The schema language: from `.pg` text to the resolved catalog, accepted schemas, and plans of changes."""
