"""The query language: from `.gq` text to the representation that every engine executes."""
