"""Lance datasets: opened at exact versions, scanned, written in two phases, compacted, indexed and cleaned."""
