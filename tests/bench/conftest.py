"""Makes the modules of bench-scripts importable, where the checkout has them."""

import sys
from pathlib import Path

_SCRIPTS = Path(__file__).parents[2] / "bench-scripts"

sys.path.append(str(_SCRIPTS))
collect_ignore_glob = [] if _SCRIPTS.is_dir() else ["test_*.py"]  # source archives come without
