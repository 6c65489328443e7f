"""The screens of `threads`, `history`, `show` and `diff`.

Lists come line by line as they are read, so columns have a width of their own and do not wait for the widest value.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from deltastore.cli.conversation import Bounds, as_conversation, everything, one_line, value_lines
from deltastore.cli.graph import Graph
from deltastore.cli.screen import SHORT_ID, WIDE, console, counted, cut, line, pairs, print_line, short_id, when
from deltastore.inspection import (
    ChannelChange,
    ChannelDifference,
    ChannelView,
    CheckpointView,
    Difference,
    HistoryEntry,
    NamespaceSummary,
    ThreadSummary,
    WriteView,
)

SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "unknown": ("?", "red")}
EVENTS = {ERROR: "failed", INTERRUPT: "is interrupted", RESUME: "is resumed with"}
STATUS_STYLE = "bold red"


async def print_threads(threads: AsyncIterator[ThreadSummary], limit: int) -> None:
    """One line for each of the first `limit` threads (0 for all), and how to go on if there are more.

    Ids are whole: where they are longer than what is left of a line, the terminal goes on in the next one.
    """
    target, shown, last = console(), 0, ""
    async for each in threads:
        if limit and shown == limit:
            target.print(Text(f"{counted(shown, 'thread')}; for more --after {last}", "dim"), soft_wrap=True)
            return
        if not shown:
            checkpoint = f" {'checkpoint':<36}" if target.width >= WIDE else ""
            head = f"{'step':>6} {'source':<6} {'saved (UTC)':<19}{checkpoint} {'pinned':<6} thread"
            target.print(Text(head, "dim"), no_wrap=True, overflow="crop")
        target.print(_thread(each, target.width), soft_wrap=True)
        shown, last = shown + 1, each.cursor
    if not shown:
        target.print("no threads")


def _thread(each: ThreadSummary, width: int) -> Text:
    text = Text(f"{_number(each.step):>6} {line(each.source or '-'):<6} {when(each.saved_at):<19} ")
    if width >= WIDE:
        text.append(f"{cut(each.checkpoint_id or '-', 36)} ", "yellow")
    text.append(f"{'pinned' if each.pinned else '':<6} ", "magenta").append(line(each.thread_id), "bold")
    left = width - text.cell_len - 2
    if width >= WIDE and left > 0:
        text.append(f"  {cut(pairs(_telling(each.metadata)), left)}".rstrip(), "dim")
    return text


async def print_namespaces(namespaces: AsyncIterator[NamespaceSummary]) -> None:
    """One line for each namespace."""
    target, is_first = console(), True
    id_width = 36 if target.width >= WIDE else SHORT_ID
    async for each in namespaces:
        if is_first:
            target.print(Text(f"{'checkpoint':<{id_width}} {'saved (UTC)':<19} namespace", "dim"), no_wrap=True)
            is_first = False
        shown_id = each.checkpoint_id if target.width >= WIDE else short_id(each.checkpoint_id)
        text = Text().append(cut(shown_id, id_width), "yellow")
        text.append(f" {when(each.saved_at):<19} ")
        text.append(line(each.namespace) or "(root)", "bold")
        target.print(text, soft_wrap=True)
    if is_first:
        target.print("no namespaces")


async def print_history(entries: AsyncIterator[HistoryEntry]) -> None:
    """The tree, a line for each checkpoint as it is read."""
    target, graph = console(is_cut=False), Graph()
    empty = True
    async for each in entries:
        empty = False
        follows = each.parent_id is not None and each.parent_id < each.checkpoint_id
        is_leaf = not graph.is_awaited(each.checkpoint_id)
        before, below = graph.node(each.checkpoint_id, each.parent_id if follows else None)
        text = Text().append(f"{cut(before, min(len(before), target.width // 3))} ", "red")
        text.append_text(_entry(each, target.width, is_leaf=is_leaf))
        if each.parent_id is not None and not follows:
            text.append(f"  parent above: {short_id(each.parent_id)}", "red")
        print_line(target, text)
        for lanes in below:
            target.print(Text(cut(lanes, min(len(lanes), target.width // 3)), "red"))
    if empty:
        target.print("no checkpoints")


def print_checkpoint(view: CheckpointView, *, full: bool) -> None:
    """A checkpoint: what it is, its channels, its pending writes."""
    target = console()
    bounds = everything(target.width) if full else Bounds(target.width)
    for text in _heading(view):
        target.print(text, soft_wrap=True)
    for channel in view.channels:
        target.print()
        _print_rule(target, channel.channel, _described(channel))
        for text in _channel_lines(channel, bounds):
            target.print(text, soft_wrap=True)
    if not view.channels:
        target.print("\nno channel has a value")
    if view.writes:
        target.print()
        _print_rule(target, "pending writes", f"{len(view.writes)}")
        for write in view.writes:
            text = Text().append(f"  {line(write.node or write.task_id)} ", "bold")
            text.append(f"{EVENTS.get(write.channel, '→ ' + line(write.channel))}: ")
            left = 1_000_000 if full else max(target.width - len(text), 20)
            target.print(text.append(one_line(_event(write), left)), soft_wrap=True)


def print_difference(difference: Difference, *, full: bool) -> None:
    """What differs, channel by channel."""
    target = console()
    width = 1_000_000 if full else target.width
    target.print(Text(f"{line(difference.first)} → {line(difference.second)}", "yellow"), soft_wrap=True)
    for channel in difference.channels:
        target.print()
        _print_rule(target, channel.channel, _counted(channel))
        for text in _difference_lines(channel, width):
            target.print(text, soft_wrap=True)
    if not difference.channels:
        target.print("no channel differs")


def _print_rule(target: Console, name: str, note: str) -> None:
    title = Text().append(line(name), "bold").append(f"  {note}" if note else "", "dim")
    target.print(Rule(title, align="left", characters="─", style="dim"))


def _entry(entry: HistoryEntry, width: int, *, is_leaf: bool) -> Text:
    shown_id = entry.checkpoint_id if width >= WIDE else short_id(entry.checkpoint_id)
    text = Text().append(line(shown_id), "yellow")
    text.append(f" {_number(entry.step):>4} {entry.source or '-':<6}")
    if width >= WIDE:
        text.append(f" {when(entry.saved_at):<19}", "dim")
    if entry.problem:
        return text.append(f" {line(entry.problem)}", STATUS_STYLE)
    if entry.status:
        text.append(f" {entry.status}", STATUS_STYLE)
    if entry.next:
        text.append(f" → {line(', '.join(entry.next))}", "cyan")
    if entry.changes:
        text.append(f"  {line(', '.join(map(_change, entry.changes)))}")
    if entry.writes and is_leaf:
        text.append(f"  {counted(entry.writes, 'pending write')}", "dim")
    return text


def _change(change: ChannelChange) -> str:
    if change.how == "gone" or (change.how == "new" and not change.after):
        return f"{change.channel} {change.how}"
    if change.after is None:
        return change.channel
    grown = change.after - (change.before or 0)
    if change.how == "written":
        return f"{change.channel} {grown if grown > 0 else change.after:+} written"
    return f"{change.channel} {grown:+}" if grown else f"{change.channel} ~{change.after}"


def _heading(view: CheckpointView) -> Iterator[Text]:
    yield Text("thread      ").append(line(view.thread_id), "bold")
    if view.namespace:
        yield Text("namespace   ").append(line(view.namespace), "bold")
    yield Text("checkpoint  ").append(line(view.checkpoint_id), "yellow")
    yield Text("parent      ").append(line(view.parent_id or "none"), "yellow" if view.parent_id else "")
    step = f"{_number(view.step)}, {view.source or 'unknown source'}, {when(view.saved_at)} UTC"
    yield Text(f"step        {line(step)}")
    following = Text("next        ").append(line(", ".join(view.next)) or "none seen", "cyan" if view.next else "")
    yield following.append(f"  {view.status}", STATUS_STYLE) if view.status else following
    if told := _telling(view.metadata):
        yield Text(f"metadata    {line(pairs(told))}")


def _telling(metadata: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, value in metadata.items()
        if value is not None and not (isinstance(value, str | list | dict) and not value)
    ]


def _described(channel: ChannelView) -> str:
    kept = {"stored": "", "snapshot": "DeltaChannel, snapshot", "folded": "DeltaChannel, folded"}
    note = kept.get(channel.origin, "DeltaChannel, not folded")
    size = ""
    if channel.origin != "unfolded" and isinstance(channel.value, list | dict | set | tuple):
        conversation = as_conversation(channel.value) if channel.value else None
        what = "key" if isinstance(channel.value, dict) else "item" if conversation is None else "message"
        size = counted(len(channel.value), what)
    return ", ".join(filter(None, (size, note)))


def _channel_lines(channel: ChannelView, bounds: Bounds) -> Iterator[Text]:
    if channel.problem:
        yield Text(f"  {line(channel.problem)}", "red")
    if channel.origin != "unfolded":
        yield from value_lines(channel.value, bounds)
        return
    seed = "no seed" if channel.value is None else "a seed"
    yield Text(f"  {seed}, then {counted(len(channel.writes), 'write')}:", "dim")
    if channel.value is not None:
        yield from value_lines(channel.value, bounds)
    shown = channel.writes if bounds.elements is None else channel.writes[-bounds.elements :]
    if len(shown) < len(channel.writes):
        yield Text(f"  … {len(channel.writes) - len(shown):,} earlier writes", "dim")
    for write in shown:
        yield Text(f"  + {one_line(write, bounds.width - 4)}")


def _counted(channel: ChannelDifference) -> str:
    if channel.how != "changed":
        return channel.how
    counts = {how: sum(item.how == how for item in channel.items) for how in SIGNS}
    return ", ".join(f"{count:,} {how}" for how, count in counts.items() if count)


def _difference_lines(channel: ChannelDifference, width: int) -> Iterator[Text]:
    if channel.problem:
        yield Text(f"  {line(channel.problem)}", "red")
    for item in channel.items:
        sign, style = SIGNS[item.how]
        place = "" if item.place is None else f"[{item.place!r}] "
        head = f"  {sign} {line(place)}"
        left = max(width - len(head), 20)
        if item.how != "changed":
            yield Text(head + one_line(item.before if item.how == "removed" else item.after, left), style)
            continue
        yield Text(f"  - {line(place)}{one_line(item.before, left)}", "red")
        yield Text(f"  + {line(place)}{one_line(item.after, left)}", "green")


def _event(write: WriteView) -> Any:
    """The value of a write; of an interrupt what it asks."""
    if write.channel == INTERRUPT and isinstance(write.value, list | tuple) and len(write.value) == 1:
        return getattr(write.value[0], "value", write.value[0])
    return write.value


def _number(step: int | None) -> str:
    return "-" if step is None else str(step)
