"""`deltastore demo`: the main job, shown."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click
from rich.console import Console

from deltastore.cli.database import DSN_HELP
from deltastore.errors import InvalidConfigError


@click.command()
@click.option("--turns", default=200, show_default=True, type=click.IntRange(2), help="Length of the conversation.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='Recorded conversations: JSONL (also .gz), {"messages": [OpenAI chat messages]} a line.',
)
@click.option("--dsn", metavar="DSN", help=f"Use this database: {DSN_HELP}  [default: a temporary embedded server]")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON, and the rest to standard error.")
def demo(turns: int, trace: Path | None, dsn: str | None, as_json: bool) -> None:
    """Replay a long conversation, kill the process in the middle, resume, and compare with the stock saver."""
    try:
        from deltastore.demo import screen, show  # noqa: PLC0415 - the stock saver and LangGraph are an extra
    except ModuleNotFoundError as error:
        raise InvalidConfigError(
            "the demo needs more packages",
            detail=str(error),
            hint="pip install 'langgraph-checkpoint-deltastore[demo]'",
        ) from error
    results = show.run(screen.Screen(Console(stderr=as_json)), turns=turns, trace=trace, dsn=dsn)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(result) for result in results], indent=2))
