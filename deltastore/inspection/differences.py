"""What differs between two checkpoints of a thread, channel by channel.

Values are compared as their encoded items, so equal means equal with all types; only what differs is decoded. A list is
compared by the ids of its elements where all of them have one and keep their order (messages do), else by its longest
common parts; a dict by its keys; any other value as a whole. DeltaChannels are folded first. One that cannot be folded
is `unknown` if its seed or writes differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from deltastore.conversion import convert
from deltastore.core.codec import SNAPSHOT, Codec, EncodedValue, ValueKind
from deltastore.errors import UnserializableValueError
from deltastore.inspection.checkpoints import Snapshot, load
from deltastore.inspection.folding import Reducer
from deltastore.inspection.following import is_plumbing
from deltastore.inspection.messages import message_of
from deltastore.inspection.records import ChannelDifference, Difference, ItemDifference
from deltastore.inspection.values import read_item, read_value
from deltastore.langgraph.saver import EngineSaver

ALIGNED_MAX = 4_000_000
"""Two lists without ids are aligned if the product of their differing lengths is at most this."""


async def diff(
    saver: EngineSaver,
    thread_id: str,
    first: str,
    second: str,
    *,
    namespace: str = "",
    reducers: Mapping[str, Reducer] | None = None,
) -> Difference:
    """What differs between two checkpoints, from the first to the second.

    Args:
        saver: An open saver.
        thread_id: The thread.
        first: The id of one checkpoint, or its beginning.
        second: The id of the other, or its beginning.
        namespace: The namespace of both.
        reducers: Reducers of DeltaChannels by channel; messages need none.

    Raises:
        InvalidConfigError: There is no such thread or checkpoint.
        DatabaseError: The database is away, or not set up.
        StoredDataError: A state cannot be rebuilt exactly.
    """
    given = reducers or {}
    before = await load(saver, thread_id, first, namespace, given)
    after = await load(saver, thread_id, second, namespace, given)
    channels = [
        found
        for channel in dict.fromkeys((*_channels(before), *_channels(after)))
        if (found := _difference(before, after, channel, given.get(channel))) is not None
    ]
    return Difference(
        before.loaded.thread.thread_id, namespace, before.checkpoint_id, after.checkpoint_id, tuple(channels)
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """A channel of one checkpoint: its encoded value (None: it has none), or why that is not known."""

    value: EncodedValue | None
    problem: str = ""


def _channels(snapshot: Snapshot) -> list[str]:
    names = (*snapshot.loaded.state.values, *snapshot.histories)
    return [name for name in names if not is_plumbing(name)]


def _difference(before: Snapshot, after: Snapshot, channel: str, reducer: Reducer | None) -> ChannelDifference | None:
    if channel in before.histories and channel in after.histories and _same_history(before, after, channel):
        return None
    first, second = _side(before, channel, reducer), _side(after, channel, reducer)
    if problem := first.problem or second.problem:
        return ChannelDifference(channel, "unknown", (), problem)
    if first.value is None or second.value is None:
        if first.value is second.value:
            return None
        how = "added" if first.value is None else "removed"
        old, new = (_decoded(before.codec, side.value, channel) for side in (first, second))
        return ChannelDifference(channel, how, (ItemDifference(how, None, old, new),))
    items = tuple(compare(before.codec, first.value, second.value, channel))
    return ChannelDifference(channel, "changed", items) if items else None


def _same_history(before: Snapshot, after: Snapshot, channel: str) -> bool:
    one, other = before.loaded.state.histories[channel], after.loaded.state.histories[channel]
    seeds = [None if each.seed is None else each.seed.pieces.places for each in (one, other)]
    return seeds[0] == seeds[1] and one.writes.places == other.writes.places


def _side(snapshot: Snapshot, channel: str, reducer: Reducer | None) -> _Side:
    stored = snapshot.loaded.state.values.get(channel)
    if stored is not None:
        return _Side(convert.encoded(snapshot.loaded.items, stored.kind & ~SNAPSHOT, stored.pieces))
    if channel not in snapshot.histories:
        return _Side(None)
    found = snapshot.channel(channel, reducer)
    if found.origin == "unfolded":
        return _Side(None, found.problem)
    try:
        return _Side(snapshot.codec.encode(found.value, channel))
    except UnserializableValueError as error:
        return _Side(None, f"its folded value cannot be compared: {error}")


def compare(codec: Codec, first: EncodedValue, second: EncodedValue, channel: str) -> Iterator[ItemDifference]:
    """The elements that differ between two values."""
    if first.kind != second.kind or first.kind == ValueKind.OPAQUE:
        if (first.kind, first.items, first.keys) != (second.kind, second.items, second.keys):
            yield ItemDifference("changed", None, *(_decoded(codec, each, channel) for each in (first, second)))
    elif first.kind == ValueKind.DICT:
        yield from _compare_dicts(codec, first, second)
    else:
        yield from _compare_lists(codec, first.items, second.items)


def _compare_dicts(codec: Codec, first: EncodedValue, second: EncodedValue) -> Iterator[ItemDifference]:
    old = dict(zip(first.keys or (), first.items, strict=True))
    new = dict(zip(second.keys or (), second.items, strict=True))
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key):
            yield _item(codec, key, old.get(key), new.get(key))


def _compare_lists(codec: Codec, old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[ItemDifference]:
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    left_ids, right_ids = ([_id_of(read_item(codec, item, "")) for item in side] for side in (left, right))
    for one, other in _pairs(left, right, left_ids, right_ids):
        place = head + (other if other is not None else one or 0)
        yield _item(codec, place, None if one is None else left[one], None if other is None else right[other])


def _pairs(
    left: Sequence[bytes], right: Sequence[bytes], left_ids: Sequence[Any], right_ids: Sequence[Any]
) -> Iterator[tuple[int | None, int | None]]:
    """Positions of elements that differ: `(old, new)`, None where there is none."""
    places = {each: at for at, each in enumerate(left_ids)}
    kept = set(right_ids)
    are_unique = None not in places.keys() | kept and len(places) == len(left) and len(kept) == len(right)
    if are_unique and [each for each in left_ids if each in kept] == [each for each in right_ids if each in places]:
        yield from ((at, None) for at, each in enumerate(left_ids) if each not in kept)
        for at, each in enumerate(right_ids):
            one = places.get(each)
            if one is None or left[one] != right[at]:
                yield one, at
        return
    if len(left) * len(right) > ALIGNED_MAX:
        blocks: Sequence[tuple[str, int, int, int, int]] = [("replace", 0, len(left), 0, len(right))]
    else:
        blocks = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    for name, start, end, new_start, new_end in blocks:
        if name == "equal":
            continue
        for offset in range(max(end - start, new_end - new_start)):
            one, other = start + offset, new_start + offset
            pair = one if one < end else None, other if other < new_end else None
            if None in pair or left[one] != right[other]:
                yield pair


def _item(codec: Codec, place: int | str, old: bytes | None, new: bytes | None) -> ItemDifference:
    how = "added" if old is None else "removed" if new is None else "changed"
    before, after = (None if item is None else read_item(codec, item, str(place)) for item in (old, new))
    return ItemDifference(how, place, before, after)


def _id_of(value: Any) -> str | None:
    message = message_of(value)
    return (message.message_id or None) if message is not None else None


def _common(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    """How many elements two sequences have in common at their beginning."""
    shorter = min(len(left), len(right))
    return next((at for at in range(shorter) if left[at] != right[at]), shorter)


def _decoded(codec: Codec, value: EncodedValue | None, channel: str) -> Any:
    return None if value is None else read_value(codec, value, channel)
