"""Expert stats on disk: JSON or text by the file's name, whole or not at all, never fatal."""

from pathlib import Path

from sharpi.errors import StatsFileError
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_json import from_json, to_json
from sharpi.experts.stats.stats_text import embedded_json, format_stats
from sharpi.system.atomic_file import write_or_warn


def save_stats(path: Path, stats: ExpertStats) -> str | None:
    """Writes JSON where the name ends in .json, else text.

    Returns what to warn of where that fails: stats never cost the run.
    """
    text = to_json(stats) + "\n" if path.suffix.lower() == ".json" else format_stats(stats)
    return write_or_warn(path, text.encode(), "the expert stats were")


def read_stats(path: Path) -> ExpertStats:
    """The stats in either kind of file; raises StatsFileError."""
    try:
        text = path.read_text("utf-8", errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StatsFileError(f"{path}: cannot be read ({reason})") from None
    return from_json(embedded_json(text) or text, str(path))
