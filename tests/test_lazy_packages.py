"""A package that is imported on use stays out of the workers that only collect its tests."""

import os
import subprocess
import sys
from pathlib import Path

from lazy_packages import OnUse

PACKAGE = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
"""
TEST = """
from lazy_packages import OnUse
slow = OnUse("slow_package")
def test_it():
    pass
"""


def test_collecting_tests_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "slow_package.py").write_text(PACKAGE)
    (tmp_path / "test_slow.py").write_text(TEST)
    collect = [sys.executable, "-m", "pytest", "-q", "--collect-only", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run(collect, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert not (tmp_path / "imported").exists()


def test_a_name_is_the_packages() -> None:
    assert OnUse("math").pi > 3
