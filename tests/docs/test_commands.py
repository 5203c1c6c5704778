"""Every command in the README and in docs/ runs, in the order in which a page has them."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk
from documents import DOCUMENTS, README, ROOT, commands, name_of
from stand_in import StandIn

from sharpi.resources import demo_model

pytestmark = pytest.mark.native

_SETUP = "it sets up the environment that the tests run in"
_MACHINES = "test_several_machines.py runs it"
_CLIENT = "test_readme_setups.py runs it"
NOT_RUN = {
    "git clone": "it needs the address of the repository",
    "make run": _SETUP,
    "make test": "it runs this test",
    "source .venv/bin/activate": _SETUP,
    "pip install -e '.[cuda13]'": "it needs a network, and a GPU to be of use",
    "sharpi run model.gguf --device cuda:0,1": "it needs two GPUs",
    "claude": "it needs Claude Code",
    'sharpi run model.gguf "Why is the sky blue?" --hosts': _MACHINES,
    "sharpi join": _MACHINES,
    "sharpi doctor --hosts": _MACHINES,
    "torchrun": _MACHINES,
    "python bench-scripts/gpu/launches.py": "tests/bench/test_launches.py counts the same",
    "curl http://127.0.0.1:8080/v1/chat/completions": _CLIENT,
}
_REPOSITORY = "Qwen/Qwen3-30B-A3B-GGUF"
_FILE = "Qwen3-30B-A3B-Q4_K_M.gguf"


def _reason_not_to_run(command: str) -> str | None:
    return next((NOT_RUN[each] for each in NOT_RUN if command.startswith(each)), None)


@pytest.fixture(scope="module")
def hub() -> Iterator[StandIn]:
    """A hub whose repository of the documents holds the demo model."""
    with StandIn() as running:
        running.add(_REPOSITORY, {_FILE: demo_model().read_bytes()})
        yield running


@pytest.fixture
def desk(tmp_path: Path, hub: StandIn) -> Desk:
    return Desk(tmp_path, hub.endpoint)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_each_command_runs(document: Path, desk: Desk) -> None:
    for command in commands(document):
        if _reason_not_to_run(command) is None:
            desk.run(command)


@pytest.mark.parametrize("command", NOT_RUN)
def test_not_run(command: str) -> None:
    """A listed command counts as skipped; the list may only name commands of the documents."""
    found = [each for document in DOCUMENTS for each in commands(document)]
    assert any(each.startswith(command) for each in found)
    pytest.skip(NOT_RUN[command])


def test_the_demo_tells_the_story_of_the_readme(desk: Desk) -> None:
    [command] = [each for each in commands(README) if "-s 9" in each]
    shown = README.read_text("utf-8").partition(f"$ {command}\n")[2].partition("\n```")[0]
    assert desk.run(command).strip() == "\n".join(shown.splitlines()[1:-1])


def test_make_knows_the_documented_targets() -> None:
    text = "".join(path.read_text("utf-8") for path in DOCUMENTS)
    targets = set(re.findall(r"\bmake ([a-z]+)\b(?=[`\n])", text))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "run" in targets
    assert not [each for each in targets if not re.search(rf"^{each}:", makefile, re.MULTILINE)]


def test_the_project_has_the_documented_extras() -> None:
    text = "".join(path.read_text("utf-8") for path in DOCUMENTS)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(re.findall(r"'\.\[(\w+)\]'", text)) <= set(extras["optional-dependencies"])
