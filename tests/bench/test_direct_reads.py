"""Direct reads: a rate for files large enough, and a reason where there is none."""

from pathlib import Path

import pytest
from direct_reads import CHUNK_BYTES, direct_bytes_per_second

from sharpi.errors import UsageError


def test_a_file_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "m"
    file.write_bytes(bytes(3 * CHUNK_BYTES + 5))
    try:
        assert direct_bytes_per_second(file, seconds=1) > 0
    except UsageError as error:
        pytest.skip(str(error))


def test_a_small_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "m"
    file.write_bytes(bytes(CHUNK_BYTES - 1))
    with pytest.raises(UsageError, match="m: too small to measure"):
        direct_bytes_per_second(file, seconds=1)
