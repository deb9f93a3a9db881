"""Creates, lists and deletes tags."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.api.listings import tag_list
from omnigraph.commit.notes import note_of
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN
from omnigraph.commit.snapshot import ManifestState
from omnigraph.commit.sweep import settled_window
from omnigraph.commit.tags import Tag, TagEvent, check_new_tag, find_tag, tag_name
from omnigraph.commit.targets import check_pins, check_readable, resolve_target
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.graph.open_graph import OpenGraph, graph_method
from omnigraph.policy.rules import Action


@graph_method
def tags(graph: OpenGraph) -> list[Tag]:
    return tag_list(graph.environment.manifest.tags().values())


@graph_method
def create_tag(
    graph: OpenGraph,
    name: str,
    commit: str = MAIN,
    *,
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, object] | None = None,
) -> Tag:
    graph.require_writable()
    name, note, environment = tag_name(name), note_of(message, metadata), graph.environment
    commit_id = graph.commit_id(commit)
    made = check_readable(graph.state(), environment.manifest.commit(commit_id), commit_id)
    graph.authorize(Action.BRANCH_CREATE, actor, branch=made.branch, target=name)
    graph.authorize_reading(commit_id, actor)

    def make_event(state: ManifestState, known: Mapping[str, Tag], number: int) -> TagEvent:
        check_new_tag(name, known, state.heads)
        # Under the commit lock, as a cleanup is: what is there now stays, because the tag holds it from here on.
        snapshot = resolve_target(environment.manifest, state, Target(snapshot=commit_id))
        check_pins(environment.tables, snapshot.pins.values())
        reach(Failpoint.BEFORE_BRANCH_PUBLISH)
        return TagEvent(tag=Tag.of(name, commit_id, actor, environment.clock(), note), number=number)

    with settled_window(environment) as held:
        tag = held.publish_tag(make_event)
        reach(Failpoint.AFTER_BRANCH_PUBLISH)
    return tag


@graph_method
def delete_tag(graph: OpenGraph, name: str, actor: str | None = None) -> Tag:
    graph.require_writable()
    name, environment = tag_name(name), graph.environment
    graph.authorize(Action.BRANCH_DELETE, actor, target=name)

    def make_event(_: ManifestState, known: Mapping[str, Tag], number: int) -> TagEvent:
        tag = find_tag(name, known)
        reach(Failpoint.BEFORE_BRANCH_PUBLISH)
        return TagEvent(tag=tag, number=number, deleted_by=actor, deleted_at=environment.clock())

    with settled_window(environment) as held:
        tag = held.publish_tag(make_event)
        reach(Failpoint.AFTER_BRANCH_PUBLISH)
    return tag
