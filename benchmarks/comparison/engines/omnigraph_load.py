"""Fills an empty graph from a dataset, in one commit.

Goes below the public interface: it stages whole Arrow tables and commits them by the protocol of every writer, without
the checks of a load (the generator already refuses repeated keys and dangling edges).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph.ids import edge_table_key, node_table_key
from omnigraph.manifest import Expectations
from omnigraph.recovery import Intent, StagedTable, WriterKind, commit_write
from omnigraph.storage import stage_append

if TYPE_CHECKING:
    from graphs.folder import Dataset
    from omnigraph import Graph


def fill(graph: Graph, dataset: Dataset) -> None:
    """Append every row of the dataset; all of them become visible at once."""
    snapshot, environment = graph.snapshot(), graph._environment
    rows = {node_table_key(name): node_rows(dataset, name) for name in dataset.nodes}
    rows |= {edge_table_key(name): edge_rows(dataset, name) for name in dataset.edges}
    expectations = Expectations(
        branch=snapshot.branch,
        incarnation=snapshot.incarnation,
        schema_hash=snapshot.schema_hash,
        touched={key: snapshot.pins[key].version for key in rows},
    )
    with environment.staging.shared():
        staged = []
        for key, table in rows.items():
            pin = snapshot.pins[key]
            target = environment.tables.open(pin.location, pin.branch, pin.version)
            columns = stored(table, target.schema)
            staged.append(
                StagedTable(
                    table_key=key,
                    incarnation=pin.incarnation,
                    staged=stage_append(target, columns),
                )
            )
        commit_write(environment, Intent(kind=WriterKind.LOAD, expectations=expectations), staged)


def node_rows(dataset: Dataset, type_name: str) -> pa.Table:
    """The nodes of a type; the id is the spelling of the key, which is a whole number or a text."""
    table = pq.read_table(dataset.node_path(type_name))
    return table.add_column(0, "id", table.column(0).cast(pa.string()))


def edge_rows(dataset: Dataset, type_name: str) -> pa.Table:
    """The edges of a type, numbered; both ends are node ids."""
    table = pq.read_table(dataset.edge_path(type_name))
    number = pc.utf8_lpad(pa.array(range(table.num_rows)).cast(pa.string()), 10, "0")
    ends = {
        name: table[column].cast(pa.string()) for name, column in (("src", "from"), ("dst", "to"))
    }
    properties = {name: table[name] for name in table.column_names[2:]}
    return pa.table({"id": number, **ends, **properties})


def stored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns as the graph stores them: an instant is `date64`, in milliseconds."""
    columns = []
    for field in schema:
        column = table[field.name]
        if pa.types.is_date64(field.type):
            # A direct cast to a date would cut the time of day off.
            column = column.cast(pa.int64())
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)
