"""Which nodes are to run next, read from a checkpoint without its graph.

LangGraph finds the next tasks with the graph at hand: a node runs if one of its trigger channels has a value in a
version that the node has not seen. The checkpoint names no triggers. But graphs of LangGraph 0.3 and later use channels
whose names say whom they trigger, and those are read here:

- `branch:to:NODE`, an edge or a branch to a node;
- `join:A+B:NODE`, an edge from several nodes: once all of them have written;
- `__start__`, the input of the graph;
- `__pregel_tasks`, the list of queued `Send`s.

The first two wait for the end of the run if the node is deferred: then their value says whether it has come.

As in LangGraph, a node whose task has written already is left out of the present state of a thread, and named where an
earlier checkpoint is looked at. What cannot be seen: graphs made with `Pregel` by
hand or by an older LangGraph, whose triggers are channels of any name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS

from deltastore.core.header import Header
from deltastore.core.state import State, Value
from deltastore.core.writes import StoredWrite
from deltastore.inspection.values import Unopened

START = "__start__"
BRANCH, JOIN = "branch:to:", "join:"
WAITING = object()
_PULL = "~__pregel_pull, "
_PUSH = re.compile(r"~__pregel_push, (\d{10})(?:,|$)")


def is_plumbing(channel: str) -> bool:
    """Whether a channel only says what runs next. Inputs and what the functional API keeps are values like others."""
    return channel == TASKS or channel.startswith((BRANCH, JOIN, "start:", "branch:"))


def next_nodes(
    state: State, writes: Iterable[StoredWrite], read: Callable[[str, Value], list[Any] | None]
) -> tuple[str, ...]:
    """The nodes that were to run next, each once, Sends last.

    Args:
        state: The checkpoint's state.
        writes: Its pending writes, if nodes that have written are to be left out.
        read: The elements of a channel's value, or None if they are not at hand.
    """
    done = {each.write.task_path for each in writes if each.write.index >= 0}
    nodes = {node_of(path) for path in done}
    sent = {int(match[1]) for path in done if (match := _PUSH.match(path)) is not None}
    found = dict.fromkeys(node for node in _triggered(state, read) if node not in nodes)
    return (*found, *(node for at, node in enumerate(send_targets(state, read)) if at not in sent))


def node_of(task_path: str, sends: Sequence[str] = ()) -> str | None:
    """The node of a task, as its path tells; None for a path of another form.

    Args:
        task_path: The path.
        sends: The nodes that the checkpoint's queued `Send`s go to, in order; their tasks are named by position.
    """
    if task_path.startswith(_PULL):
        return task_path.removeprefix(_PULL)
    position = _PUSH.match(task_path)
    return sends[int(position[1])] if position is not None and int(position[1]) < len(sends) else None


def status_of(writes: Iterable[StoredWrite]) -> str:
    """`interrupted` or `failed`, as the pending writes tell; empty for neither. A resumed interrupt does not count."""
    tasks: dict[str, set[str]] = {}
    for each in writes:
        tasks.setdefault(each.write.channel, set()).add(each.write.task_id)
    if ERROR in tasks:
        return "failed"
    return "interrupted" if tasks.get(INTERRUPT, set()) - tasks.get(RESUME, set()) else ""


def _triggered(state: State, read: Callable[[str, Value], list[Any] | None]) -> Iterator[str]:
    for channel, value in state.values.items():
        if channel.startswith(BRANCH):
            node = channel.removeprefix(BRANCH)
            is_ready = _content(read(channel, value)) is not WAITING
        elif channel.startswith(JOIN):
            names, _, node = channel.removeprefix(JOIN).rpartition(":")
            is_ready = _content(read(channel, value)) == set(names.split("+"))
        else:
            node, is_ready = START, channel == START
        if is_ready and _is_unseen(state.header, channel, node):
            yield node


def _content(elements: list[Any] | None) -> Any:
    """The content of a trigger channel; `WAITING` if it belongs to a deferred node whose time has not come."""
    content = elements[0] if elements and len(elements) == 1 else elements
    if isinstance(content, list | tuple) and len(content) == 2 and isinstance(content[1], bool):
        return content[0] if content[1] else WAITING
    return content


def _is_unseen(header: Header, channel: str, node: str) -> bool:
    seen, version = header.seen.get(node), header.versions.get(channel)
    if seen is None or channel not in seen or version is None:
        return True
    before = seen[channel]
    return type(before) is not type(version) or version > before  # type: ignore[operator]


def send_targets(state: State, read: Callable[[str, Value], list[Any] | None]) -> Iterator[str]:
    """The nodes that the queued `Send`s go to, in order; `Send` where that cannot be read."""
    value = state.values.get(TASKS)
    if value is None:
        return
    elements = read(TASKS, value)
    for position in range(len(value.pieces.places)):
        yield _send_target(elements[position]) if elements is not None else "Send"


def _send_target(send: Any) -> str:
    if isinstance(send, Unopened) and isinstance(send.value, list | tuple) and send.value:
        return str(send.value[0])
    return str(getattr(send, "node", "Send"))
