"""The top of the command line."""

from __future__ import annotations

import click

from deltastore.cli import inspection
from deltastore.cli.archive import archive, restore
from deltastore.cli.compact import compact
from deltastore.cli.demo import demo
from deltastore.cli.migrate import migrate
from deltastore.cli.retain import pin, retain, undelete
from deltastore.cli.schema import schema
from deltastore.cli.stats import stats
from deltastore.cli.verify import verify


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="langgraph-checkpoint-deltastore", prog_name="deltastore")
def deltastore() -> None:
    """A LangGraph checkpointer for PostgreSQL that stores only what each super-step changed."""


deltastore.add_command(archive)
deltastore.add_command(compact)
deltastore.add_command(demo)
deltastore.add_command(migrate)
deltastore.add_command(pin)
deltastore.add_command(restore)
deltastore.add_command(retain)
deltastore.add_command(schema)
deltastore.add_command(undelete)
for command in inspection.COMMANDS:
    deltastore.add_command(command)
deltastore.add_command(stats)
deltastore.add_command(verify)
