"""`sharpi stats`: what `--expert-stats` recorded, as tables, a heat map, a picture or JSON."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from sharpi.cli.options.json_output import JsonOption


def stats(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What --expert-stats PATH wrote, text or JSON."),
    ],
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="OUT", help="Draw the heat map of experts into a file, too."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how well the slots for experts served a run.

    Hits, loads, bytes, stalls and the most used experts, in all and layer by layer, what was
    predicted and pinned, and a heat map of which experts each layer used.
    """
    from sharpi.experts.stats.stats_file import read_stats
    from sharpi.experts.stats.stats_json import to_json

    recorded = read_stats(file)
    if as_json:
        print(to_json(recorded))
    else:
        from sharpi.cli.output.stats_table import print_stats

        print_stats(recorded, sys.stdout)
    if png is not None:
        from sharpi.experts.stats.heat_map import save_png

        save_png(png, recorded)
