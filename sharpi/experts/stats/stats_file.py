"""Reads and writes files of expert stats, as JSON or as text, depending on the file name."""

from pathlib import Path

from sharpi.errors import StatsFileError
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_checks import contradiction
from sharpi.experts.stats.stats_json import from_json, to_json
from sharpi.experts.stats.stats_text import embedded_json, format_stats
from sharpi.system.files import read_bounded, write_or_warn


def save_stats(path: Path, stats: ExpertStats) -> str | None:
    """Writes the stats atomically, as JSON if the name ends in .json, otherwise as text.

    Returns None, or a warning if that fails, because stats must never end a run. Inconsistent stats
    are not written.
    """
    wrong = contradiction(stats)
    if wrong is not None:
        return f"no expert stats were written, since they are wrong ({wrong}); please report it"
    text = to_json(stats) + "\n" if path.suffix.lower() == ".json" else format_stats(stats)
    return write_or_warn(path, text.encode(), "the expert stats were")


def read_stats(path: Path) -> ExpertStats:
    """Returns the stats in a JSON or text file; raises StatsFileError if it cannot be used."""
    try:
        text = read_bounded(path).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StatsFileError(f"{path}: cannot be read ({reason})") from None
    stats = from_json(embedded_json(text) or text, str(path))
    wrong = contradiction(stats)
    if wrong is not None:
        raise StatsFileError(f"{path}: impossible expert stats ({wrong}); record them anew")
    return stats
