"""A schema and a mapping proposed from data: tables and frames in, two texts and the evidence for them out.

Owns: finding and sampling tables (`tables`, `csv_dialect`), guesses about single columns (`columns`), keys and
references between tables (`relations`), what becomes a node and what an edge (`design`), and the texts (`proposal`,
`texts`). Every guess about values is tried with the reader of loads before it is proposed. Start reading at `proposal`.
"""
