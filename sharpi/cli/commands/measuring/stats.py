"""`sharpi stats`: the record of `--expert-stats` as tables, a heat map, a picture or JSON."""

import sys
from pathlib import Path
from typing import Annotated

from sharpi.cli.shared_options import JsonOption
from sharpi.settings.option import argument, local_option


def stats(
    file: Annotated[
        Path,
        argument("FILE", "A file that --expert-stats wrote, text or JSON."),
    ],
    png: Annotated[
        Path | None,
        local_option("--png", "Also draw the heat map of experts into this file.", "OUT"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how well the expert cache served a run.

    Hits, loads, bytes, stalls and the most used experts, in total and by layer, predicted and
    pinned experts, and a heat map of the experts that each layer used.
    """
    from sharpi.experts.stats.stats_file import read_stats, to_json

    recorded = read_stats(file)
    if as_json:
        print(to_json(recorded))
    else:
        from sharpi.cli.output.stats_table import print_stats

        print_stats(recorded, sys.stdout)
    if png is not None:
        from sharpi.experts.stats.heat_map import save_png

        save_png(png, recorded)
