"""Ranks with their own parts of a split model, and statistics of all ranks in one file."""

import re
from pathlib import Path

import gguf
import numpy as np
import pytest
from lazy_packages import needs
from machines import PROMPT, Machines, ended
from requantise import copy_metadata

from sharpi.experts.profile import load_profile
from sharpi.experts.stats.stats_file import contradiction, read_stats
from sharpi.gguf.reader import open_gguf
from sharpi.resources import demo_model

pytestmark = [needs("torch"), pytest.mark.native, pytest.mark.slow]
NUM_LAYERS, NUM_USED = 6, 2
TOKENS = 12


def split_demo(folder: Path) -> list[Path]:
    """Writes the demo model in parts of a few layers each, and returns them."""
    reader = gguf.GGUFReader(demo_model())
    architecture = reader.fields["general.architecture"].contents()
    own = [t for t in reader.tensors if not t.name.startswith("blk.")]
    rest = [t for t in reader.tensors if t.name.startswith("blk.")]
    size = -(-len(rest) // 3)
    writer = gguf.GGUFWriter(folder / "m.gguf", architecture, split_max_tensors=size)
    writer.data_alignment = 32
    copy_metadata(reader, writer)
    for tensor in [*rest, *own]:
        writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file(folder / "m.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("*.gguf"))


def copies(parts: list[Path], folder: Path, *numbers: int) -> Path:
    """Links some parts into a folder, and returns the first one's path there."""
    folder.mkdir()
    for number in numbers:
        (folder / parts[number].name).symlink_to(parts[number])
    return folder / parts[0].name


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    (tmp_path / "all").mkdir()
    return split_demo(tmp_path / "all")


def test_each_rank_opens_the_parts_of_its_layers(
    machines: Machines, parts: list[Path], tmp_path: Path
) -> None:
    with open_gguf(parts[0]) as file:
        of_part = {p: {t.name for t in file.tensors.values() if t.part == p} for p in range(4)}
    assert "blk.0.attn_q.weight" in of_part[0]
    assert "token_embd.weight" in of_part[3]
    first = copies(parts, tmp_path / "first", 0, 1, 3)
    second = copies(parts, tmp_path / "second", 0, 1, 2)
    joined = machines.join(second)
    hosts = ("--hosts", f"{machines.first},x")
    run = ("run", str(first), *PROMPT, "-n", str(TOKENS), "--no-log")
    code, out, err = ended(machines.start(*run, *hosts))
    assert code == 0, err
    assert out == ended(machines.start("run", str(parts[0]), *run[2:]))[1]
    assert ended(joined)[0] == 0


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ((0, 3), (0, 1), r"-00003-of-00004\.gguf: no machine has this part"),
        (
            (0, 1, 2),
            (0, 1, 2, 3),
            r"rank 0 on \S+ needs \S+ and does not have the part that holds it, m-00004-of",
        ),
    ],
)
def test_a_part_that_is_needed_is_named(
    first: tuple[int, ...],
    second: tuple[int, ...],
    reason: str,
    machines: Machines,
    parts: list[Path],
    tmp_path: Path,
) -> None:
    joined = machines.join(copies(parts, tmp_path / "second", *second))
    own, hosts = copies(parts, tmp_path / "first", *first), ("--hosts", f"{machines.first},x")
    running = machines.start("run", str(own), *PROMPT, "-n", "4", "--no-log", *hosts)
    for process in (running, joined):
        code, _, err = ended(process)
        assert code in (1, 2)
        assert "Traceback" not in err
        assert re.search(reason, err), err


def test_one_file_has_the_statistics_of_all_ranks(machines: Machines, tmp_path: Path) -> None:
    stats, profile = tmp_path / "stats.txt", tmp_path / "profile.json"
    joined = [machines.join(None, "--ram", "11MiB"), machines.join()]
    code, _, err = ended(
        machines.run(
            *PROMPT, "-n", str(TOKENS), "--expert-stats", str(stats), "--moe-profile", str(profile),
            "--spec-type", "none", others=2,
        )
    )  # fmt: skip
    assert code == 0, err
    assert [ended(process)[0] for process in joined] == [0, 0]
    found = read_stats(stats)
    assert contradiction(found) is None
    assert [layer.layer for layer in found.layers] == list(range(NUM_LAYERS))
    steps = found.num_tokens
    assert all(layer.decode.accesses == steps * NUM_USED for layer in found.layers)
    kept = load_profile(profile, demo_model().name, NUM_LAYERS, found.num_experts)
    assert kept is not None
    assert kept.uses.tolist() == [list(layer.uses) for layer in found.layers]
