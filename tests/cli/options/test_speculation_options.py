"""What the options about drafts mean together."""

from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine
from fake_engine import FakeEngine

from sharpi.settings import USUAL_DRAFTS, SpeculationConfig

FREE = ("ngram", "suffix")
OFFERED = (*FREE, "mtp")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], USUAL_DRAFTS),
        (["--spec-type", "none"], SpeculationConfig()),
        (["--spec-type", "auto"], SpeculationConfig(kinds=OFFERED, is_auto=True)),
        (["--spec-type", "draft-mtp"], SpeculationConfig(kinds=("mtp",), max_drafts=3)),
        (["--spec-type", "auto,ngram"], SpeculationConfig(kinds=("ngram",), is_auto=True)),
        (["--spec-type", "suffix,ngram"], SpeculationConfig(kinds=FREE, max_drafts=3)),
        (["--spec-type", "ngram-mod"], SpeculationConfig(kinds=("suffix",), max_drafts=3)),
        (
            ["--spec-type", "ngram", "--spec-draft-n-max", "6"],
            SpeculationConfig(kinds=("ngram",), max_drafts=6),
        ),
        (
            ["-md", "small.gguf"],
            SpeculationConfig(
                kinds=(*OFFERED, "draft"), is_auto=True, draft_model=Path("small.gguf")
            ),
        ),
        (
            ["-md", "small.gguf", "--spec-type", "draft-simple"],
            SpeculationConfig(kinds=("draft",), max_drafts=3, draft_model=Path("small.gguf")),
        ),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_meaning(
    options: list[str], expected: SpeculationConfig, sharpi: CommandLine, engine: FakeEngine
) -> None:
    assert sharpi("run", "m.gguf", "hi", *options).exit_code == 0
    assert engine.config.speculation == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--spec-type", "draft"], "--spec-type draft needs the file of --spec-draft-model"),
        (
            ["--spec-draft-n-min", "5", "--spec-draft-n-max", "4"],
            "--spec-draft-n-min and --spec-draft-n-max contradict each other",
        ),
    ],
)
def test_contradictions(
    options: list[str], message: str, sharpi: CommandLine, engine: FakeEngine
) -> None:
    result = sharpi("run", "m.gguf", "hi", *options)
    assert result.exit_code != 0
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_commands_that_generate_nothing_say_so(
    sharpi: CommandLine, engine: FakeEngine, tmp_path: Path
) -> None:
    np.save(tmp_path / "ids.npy", np.arange(4))
    files = ("--tokens", str(tmp_path / "ids.npy"), "--output", str(tmp_path / "out.npy"))
    result = sharpi("logits", "m.gguf", *files, "--spec-type", "auto")
    assert "drafts have no effect on logits, whose tokens are given" in result.err
    assert "drafts" not in sharpi("logits", "m.gguf", *files).err
    assert not engine.config.speculation.is_on
