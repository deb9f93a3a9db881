"""What people look at: values, names and numbers as tables, drawings and pictures.

Owns: short texts of values, tables as text and HTML, the layout and drawing of graphs and schemas, saved pictures, and
the files of the explorer page, whose colours and scripts the pictures share. Knows nothing of graphs and storage.
Start reading: `tables`, then `pictures` and what it draws with.
"""
