"""Ranks with emulated GPUs: each has its layers on its own, and the answers are the same."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from lazy_packages import needs
from machines import Machines, Process, ended
from numpy.typing import NDArray

pytestmark = [needs("torch"), pytest.mark.native, pytest.mark.slow, pytest.mark.cuda]
REFERENCES = Path(__file__).parents[1] / "references" / "data"
MODULE = "tests.cluster.emulated_rank"
GPU, NO_GPU = ("--device", "cuda"), ("--device", "cpu")


@pytest.fixture
def ranks() -> Iterator["Ranks"]:
    own = Ranks()
    yield own
    own.close()


class Ranks(Machines):
    """Machines whose processes find an emulated GPU."""

    def emulated(self, *arguments: str) -> Process:
        return self.start(*arguments, module=MODULE, variables={"EMULATED_VRAM": str(8 << 30)})

    def two(self, command: list[str], first: tuple[str, ...], second: tuple[str, ...]) -> str:
        """Runs a command on two ranks, with options of their own; returns its output."""
        joined = self.emulated("join", self.first, command[1], "--once", *second)
        code, out, err = ended(self.emulated(*command, "--hosts", f"{self.first},x", *first))
        assert code == 0, err
        assert ended(joined)[0] == 0
        for rank, options in enumerate((first, second)):
            runs = rf"rank {rank} on \S+ runs layers .*"
            (line,) = re.findall(runs, err)
            assert ("of VRAM for them" in line) == (options[1] == "cuda")
        return out

    def one(self, command: list[str], options: tuple[str, ...] = GPU) -> str:
        code, out, err = ended(self.emulated(*command, *options))
        assert code == 0, err
        return out


def logits(folder: Path, case: str) -> tuple[list[str], Path]:
    """Returns a command that writes logits of a batch and a half, and the file of them."""
    ids, out = folder / "ids.npy", folder / "logits.npy"
    np.save(ids, np.arange(5, 21))
    model = str(REFERENCES / f"{case}.gguf")
    command = ["logits", model, "--tokens", str(ids), "-b", "12", "--output", str(out)]
    return command, out


Alone = Callable[[str], NDArray[np.float32]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    """Gives the logits of a case by one process with a GPU; it runs once for several tests."""
    own = Ranks()

    @cache
    def logits_of(case: str) -> NDArray[np.float32]:
        command, written = logits(tmp_path_factory.mktemp("alone"), case)
        own.one(command)
        found: NDArray[np.float32] = np.load(written)
        return found

    yield logits_of
    own.close()


@pytest.mark.parametrize("case", ["lfm2moe", "gemma4-e2b"])
def test_bits_are_those_of_one_process_with_a_gpu(
    case: str, ranks: Ranks, alone: Alone, tmp_path: Path
) -> None:
    """The models have recurrent states and per-layer inputs; the next test has windows."""
    command, written = logits(tmp_path, case)
    ranks.two(command, GPU, GPU)
    assert np.array_equal(np.load(written), alone(case))


def test_windows_on_gpus_of_two_ranks(ranks: Ranks, tmp_path: Path) -> None:
    """A rank has window pages for its own layers only."""
    command, written = logits(tmp_path, "gpt-oss")
    np.save(tmp_path / "ids.npy", np.resize(np.arange(5, 105), 260))
    command[command.index("12")] = "64"
    ranks.two(command, GPU, GPU)
    both = np.load(written)
    ranks.one(command)
    assert np.array_equal(both, np.load(written))


@pytest.mark.parametrize(("first", "second"), [(GPU, NO_GPU), (NO_GPU, GPU)])
def test_one_rank_with_a_gpu_and_one_without(
    first: tuple[str, ...], second: tuple[str, ...], ranks: Ranks, alone: Alone, tmp_path: Path
) -> None:
    command, written = logits(tmp_path, "gpt-oss")
    ranks.two(command, first, second)
    mixed, expected = np.load(written), alone("gpt-oss")
    assert not np.array_equal(mixed, expected)  # a CPU rounds differently
    assert np.allclose(mixed, expected, atol=2e-3)  # of logits up to 4.6


def test_slots_and_layers_on_both_processors(ranks: Ranks) -> None:
    """Each rank has a layer on its CPU, one on its GPU, and room there for some experts."""
    model = str(Path(__file__).parents[2] / "models" / "demo" / "stories-moe.gguf")
    command = ["run", model, "Once upon", "-n", "3", "--temp", "0", "--no-log", "-c", "256"]
    options = (*GPU, "--gpu-layers", "2", "--moe-slots", "3")
    assert ranks.two(command, options, options) == ranks.one(command, NO_GPU)
