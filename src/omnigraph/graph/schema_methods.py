"""The schema half of the façade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.graph.opened import OpenGraph
from omnigraph.manifest.rows import MAIN
from omnigraph.policy.rules import Action
from omnigraph.schema.compiler import as_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from omnigraph.graph.schema_diffs import SchemaDiff
    from omnigraph.pipeline.progress import Progress
    from omnigraph.pipeline.worker_choice import Session
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.compiler import CompiledSchema
    from omnigraph.schema.plan import MigrationPlan
    from omnigraph.wire.schema_changes import SchemaApplyResult


class SchemaMethods(OpenGraph):
    """What an open graph does with its schema."""

    @property
    def schema(self) -> str:
        """The accepted schema text."""
        return self._schema_of(self._state().head(MAIN).schema_hash).source

    def plan_schema(
        self,
        schema: str | Path | CompiledSchema,
        *,
        allow_data_loss: bool = False,
        backfill: Mapping[str, object] | None = None,
    ) -> MigrationPlan:
        """The steps from the accepted schema to another one; nothing happens.

        `schema` is the path of a `.pg` file, schema text, or a compiled schema. `backfill` maps `Type.property` to the
        value that existing rows get: an expression such as `"en"` in quotes or `coalesce(title, "untitled")`, or a
        plain value that is not text.

        >>> import tempfile
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> plan = graph.plan_schema("node Paper { doi: String @key  year: I32? }")
        >>> [step.describe() for step in plan.steps]
        ['+ node Paper.year: I32?']

        Raises:
            CompilerError: the schema, or a rename hint in it, is wrong.
            BadRequestError: a backfill is wrong.
        """
        from omnigraph.graph.evolving import SchemaEvolution

        evolution = SchemaEvolution(self._environment, self._schema_of)
        return evolution.plan(
            as_compiled(schema), allow_data_loss=allow_data_loss, backfill=backfill
        )

    def apply_schema(
        self,
        schema: str | Path | CompiledSchema,
        *,
        allow_data_loss: bool = False,
        backfill: Mapping[str, object] | None = None,
        actor: str | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        validate: Callable[[Catalog], None] | None = None,
    ) -> SchemaApplyResult:
        """Make another schema the accepted one, with all of its tables, in one commit; or nothing happens.

        `schema` is the path of a `.pg` file, schema text, or a compiled schema.

        Data stays: renamed types and properties go on with their rows and history, dropped ones can be read at earlier
        commits, unless `allow_data_loss` destroys them. Rules that are new are held against existing rows first. Large
        tables are written and checked on Spark. `validate` gets the new catalog before anything happens and may raise.

        >>> import tempfile
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> receipt = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
        >>> wanted = "node Paper { doi: String @key  lang: String }"
        >>> graph.apply_schema(wanted, backfill={"Paper.lang": '"en"'}).applied
        True
        >>> graph.query("query all() { match { $p: Paper } return { $p.lang as lang } }").to_pylist()
        [{'lang': 'en'}]

        Raises:
            CompilerError: the schema, or a rename hint in it, is wrong.
            UnsupportedSchemaError: a difference has no step; nothing happened.
            SchemaViolationsError: existing rows violate the new schema; `report` counts them. Nothing happened.
            BranchesExistError: other branches than main exist; nothing happened.
            ConflictError: writers kept changing the tables, or the schema changed meanwhile; nothing happened.
        """
        from omnigraph.graph.evolving import SchemaCall, SchemaEvolution
        from omnigraph.pipeline.elastic import ElasticEngine
        from omnigraph.pipeline.progress import Silent

        self._require_writable()
        call = SchemaCall(
            wanted=as_compiled(schema),
            allow_data_loss=allow_data_loss,
            backfill=backfill or {},
            actor=actor,
            engine=ElasticEngine(engine, spark, progress or Silent()),
            validate=validate,
        )
        self._authorize(Action.SCHEMA_APPLY, actor, target=MAIN)
        self._heal()
        return SchemaEvolution(self._environment, self._schema_of).apply(call)

    def diff_schema(self, one: str, other: str = MAIN) -> SchemaDiff:
        """How the accepted schema differs between two commits or branches, as text and as steps.

        Raises:
            BranchNotFoundError: a name is neither a branch nor a commit.
            NotFoundError: there is no such commit, or its branch was deleted.
        """
        from omnigraph.graph.schema_diffs import diff_schemas

        state = self._state()
        old, new = (self._history.find(state, name) for name in (one, other))
        return diff_schemas(self._schema_of(old.schema_hash), self._schema_of(new.schema_hash))
