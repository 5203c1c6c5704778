"""Direct reads: a rate, or a reason why there is none."""

from pathlib import Path

import pytest
from memory import direct_reads
from memory.direct_reads import direct_bytes_per_second

from sharpi.errors import UsageError
from sharpi.hardware.disk import DiskRate


@pytest.mark.parametrize("is_direct", [True, False])
def test_only_direct_reads_count(is_direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_reads, "measure_disk", lambda *_: DiskRate(5.0, is_direct))
    if is_direct:
        assert direct_bytes_per_second(Path("m"), seconds=1) == 5
        return
    with pytest.raises(UsageError, match="m: its file system has no direct reads"):
        direct_bytes_per_second(Path("m"), seconds=1)
