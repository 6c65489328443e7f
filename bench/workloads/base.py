"""What a workload is: a graph to build, conversations to play on it, and the states these must end in.

A workload knows nothing of savers. Its graphs call no model: each node takes its next update from `Cues`, which the
script of a turn has filled before the clock starts, so what is timed is LangGraph and the saver. What the state must be
after each turn is folded from the same scripts by `expected_states`, with reducers of our own, never read from a saver.
"""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, StateGraph

GraphKind = Literal["plain", "delta"]
State = dict[str, Any]
Fold = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Cue:
    """What a node does next: its name and the update it returns."""

    node: str
    update: Mapping[str, Any]


@dataclass(frozen=True)
class TurnScript:
    """One turn: what the user sends, and what the nodes answer, by the key each of them looks its cue up with."""

    values: Mapping[str, Any]
    cues: Mapping[str, Cue]

    @property
    def updates(self) -> Iterator[Mapping[str, Any]]:
        """All updates of the turn in the order in which the graph applies them."""
        yield self.values
        for cue in self.cues.values():
            yield cue.update


class Cues:
    """Cues of all conversations on one graph; each is taken once."""

    def __init__(self) -> None:
        self._by_key: dict[str, Cue] = {}

    def give(self, cues: Mapping[str, Cue]) -> None:
        """Adds the cues of a turn."""
        self._by_key.update(cues)

    def take(self, key: str) -> Mapping[str, Any]:
        """The update for this key; it is forgotten."""
        return self._by_key.pop(key).update

    def next_node(self, key: str) -> str:
        """The node that has a cue for this key, or the end of the graph."""
        cue = self._by_key.get(key)
        return cue.node if cue else END


class Player(Protocol):
    """Runs the graph on one thread of one saver."""

    async def invoke(self, values: Mapping[str, Any], *, checkpoint_id: str | None = None) -> None:
        """Runs a turn, from the head or as a new branch from an older checkpoint."""

    async def update(self, values: Mapping[str, Any], *, checkpoint_id: str, as_node: str) -> str:
        """Edits the state at an older checkpoint, which starts a branch; returns the id of its first checkpoint."""

    def head_id(self) -> str:
        """The id of the checkpoint saved last on this thread."""


class Conversation(ABC):
    """The script of one thread. All of it follows from the workload's seed and the conversation's number."""

    folds: ClassVar[Mapping[str, Fold]] = {}
    is_linear: ClassVar[bool] = True  # each checkpoint is the parent of the next

    def __init__(self, cues: Cues, seed: int, number: int) -> None:
        self._cues = cues
        self._seed = seed
        self.number = number
        self._prepared: dict[int, TurnScript] = {}

    @abstractmethod
    def script(self, turn: int) -> TurnScript:
        """The script of a turn, counted from 0; the same each time it is asked for."""

    def prepare(self, turn: int) -> None:
        """Writes the script of a turn and hands the nodes their cues, before the clock runs."""
        self._prepared[turn] = self.script(turn)
        self._cues.give(self._prepared[turn].cues)

    async def play(self, player: Player, turn: int) -> None:
        """Plays a prepared turn."""
        await player.invoke(self._prepared.pop(turn).values)

    def expected_states(self) -> Iterator[State]:
        """The state after turn 0, after turn 1, and so on. Each is changed by the next step: look, do not keep."""
        state: State = {}
        for turn in itertools.count():
            self.fold(state, self.script(turn))
            yield state

    def fold(self, state: State, script: TurnScript) -> None:
        """Applies the updates of a turn to a state in place."""
        for update in script.updates:
            for channel, value in update.items():
                fold = self.folds.get(channel)
                state[channel] = fold(state.get(channel), value) if fold else value

    def rng(self, turn: int) -> random.Random:
        """The random numbers of a turn."""
        return random.Random(f"{self._seed}/{self.number}/{turn}")

    def text_index(self, turn: int) -> int:
        """A number for what a turn picks, different for all turns of all conversations."""
        return self.text_start + turn

    @property
    def text_start(self) -> int:
        """Where the conversation starts in the text."""
        return self._seed + self.number * 100_003


class Workload(ABC):
    """A kind of work. Make one per graph: it holds the cues of that graph's nodes."""

    name: str
    summary: str

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.cues = Cues()

    @abstractmethod
    def graph(self, kind: GraphKind, snapshot_frequency: int) -> StateGraph[Any, Any, Any, Any]:
        """The graph, not yet compiled, with ordinary channels or with DeltaChannels."""

    @abstractmethod
    def conversation(self, number: int) -> Conversation:
        """The script of one thread, by its number from 0."""


def state_schema(kind: GraphKind, snapshot_frequency: int, channels: Mapping[str, ChannelSpec]) -> Any:
    """A state type with the given channels, as ordinary channels or as DeltaChannels where they can be."""
    fields: dict[str, Any] = {}
    for name, spec in channels.items():
        if spec.plain is None or spec.delta is None:
            fields[name] = spec.type
        elif kind == "plain":
            fields[name] = Annotated[spec.type, spec.plain]
        else:
            fields[name] = Annotated[spec.type, DeltaChannel(spec.delta, snapshot_frequency=snapshot_frequency)]
    make_typed_dict: Any = TypedDict
    return make_typed_dict("State", fields, total=False)


@dataclass(frozen=True)
class ChannelSpec:
    """A channel of a state in both graphs. Without reducers it keeps the last value."""

    type: Any
    plain: Callable[..., Any] | None = None
    delta: Callable[[Any, Any], Any] | None = None


def extend(left: list[Any] | None, right: Sequence[Any]) -> list[Any]:
    """Reducer of a list that only grows (ordinary channel)."""
    return [*(left or ()), *right]


def extend_batch(state: list[Any], writes: Sequence[Sequence[Any]]) -> list[Any]:
    """The same for a DeltaChannel."""
    return [*state, *itertools.chain.from_iterable(writes)]


LIST_CHANNEL = ChannelSpec(list, extend, extend_batch)
