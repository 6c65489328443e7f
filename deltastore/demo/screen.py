"""What the demo shows: a bar for each run, and the table. Plain text where the output is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from deltastore.demo.conversation import Conversation


@dataclass(frozen=True)
class Result:
    """One row: a graph on a saver."""

    graph: str
    saver: str
    checkpoints: int
    stored_bytes: int
    load_ms: float


class Screen:
    """Shows progress and results on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        """Prints a line."""
        self._console.print(text, highlight=False, markup=False)

    def begin(self, conversation: Conversation, turns: int) -> None:
        """Says what is going to happen."""
        characters = sum(len(message.text) for message in conversation.messages)
        self.say(
            f"An agent's conversation: {turns:,} turns, {len(conversation.messages):,} messages,"
            f" {characters / 1e6:.1f} million characters,\n"
            f"{conversation.source}.\n"
            "An ordinary graph (add_messages) and a DeltaChannel graph replay it, each on\n"
            "LangGraph's own AsyncPostgresSaver and on deltastore. There, the process is\n"
            "killed in the middle of the run and a new one goes on."
        )

    @contextmanager
    def progress(self, title: str, turns: int) -> Iterator[Callable[[int], None]]:
        """A bar that goes to `turns`; gives the function that moves it."""
        columns = (
            TextColumn("{task.description:<26}"),
            BarColumn(bar_width=22),
            MofNCompleteColumn(),
            TextColumn("turns"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as bars:
            task = bars.add_task(title, total=turns)
            yield lambda turn: bars.update(task, completed=turn)

    def end(self, results: Sequence[Result]) -> None:
        """Prints the table."""
        table = Table(box=box.SIMPLE_HEAD if self._console.is_terminal else None, pad_edge=False)
        table.add_column("graph", no_wrap=True)
        table.add_column("saver", no_wrap=True)
        for title in ("checkpoints", "stored", "ratio", "load"):
            table.add_column(title, justify="right", no_wrap=True)
        stock = {result.graph: result for result in results if result.saver != "deltastore"}
        for result in results:
            ratio = f"1 : {stock[result.graph].stored_bytes / result.stored_bytes:,.1f}"
            table.add_row(
                result.graph,
                result.saver,
                f"{result.checkpoints:,}",
                _megabytes(result.stored_bytes),
                ratio if result.saver == "deltastore" else "",
                f"{result.load_ms:.1f} ms",
                style="bold" if result.saver == "deltastore" else None,
            )
        self._console.print(table)
        self.say(
            "Every state equals what was said, message by message, also after the kill.\n"
            "stored: all tables, indexes and TOAST. load: the last state, read by a new saver (median of 5)."
        )


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.2f} MB"
