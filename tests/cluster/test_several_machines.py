"""One model by several processes on loopback: the same answers, and one line when one is lost."""

import os
import re
import shutil
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from lazy_packages import needs
from machines import FOREVER, PROMPT, Machines, complete, ended, free_port, wait_for
from with_head import with_head

from sharpi.resources import demo_model

pytestmark = [needs("torch"), pytest.mark.native, pytest.mark.slow]


def test_the_text_is_that_of_one_process(machines: Machines) -> None:
    joined = [machines.join(), machines.join()]
    code, out, err = ended(machines.run(*PROMPT, "-n", "24", others=2))
    alone = ended(machines.start("run", str(machines.model), *PROMPT, "-n", "24", "--no-log"))
    assert (code, out) == (0, alone[1])
    assert re.search(r"rank 2 on \S+ runs layers \d+ to \d+", err)
    assert [ended(process)[0] for process in joined] == [0, 0]


@pytest.mark.parametrize("kind", ["mtp", "draft"])
def test_drafts_of_a_model_change_no_text(kind: str, tmp_path: Path) -> None:
    references = Path(__file__).parents[1] / "references" / "data"
    model = with_head(references / "qwen3moe.gguf", tmp_path / "headed.gguf")
    machines = Machines(model)
    own = ["la " * 12, *PROMPT[1:], "-n", "40", "--ignore-eos", "-v", "--spec-type", kind]
    own += ["-md", str(model)] if kind == "draft" else []
    try:
        joined = machines.join()
        code, out, err = ended(machines.run(*own))
        alone = ended(machines.start("run", str(model), *own, "--no-log"))
        assert (code, out) == (0, alone[1]), err
        drafted = rf"drafts: {kind} (\d+ proposed, \d+ checked, \d+ accepted)"
        counts = [re.findall(drafted, each) for each in (err, alone[2])]
        assert counts[0] == counts[1]
        assert counts[0]
        assert ended(joined)[0] == 0
    finally:
        machines.close()


def test_drafts_from_the_text_are_looked_for_by_default(tmp_path: Path) -> None:
    """A head, which costs more on the wire, drafts only if it is asked for."""
    references = Path(__file__).parents[1] / "references" / "data"
    model = with_head(references / "qwen3moe.gguf", tmp_path / "headed.gguf")
    machines = Machines(model)
    own = ["la " * 12, *PROMPT[1:], "-n", "40", "--ignore-eos", "-v"]
    try:
        joined = machines.join()
        code, out, err = ended(machines.run(*own))
        alone = ended(machines.start("run", str(model), *own, "--no-log"))
        assert (code, out) == (0, alone[1]), err
        assert re.search(r"^drafts: (?!none were looked for)", err, re.MULTILINE)
        assert "(MTP), not used" in err  # by default
        assert ended(joined)[0] == 0
    finally:
        machines.close()


def test_layers_with_windows_drop_pages_on_every_rank() -> None:
    machines = Machines(Path(__file__).parents[1] / "references" / "data" / "gpt-oss.gguf")
    own = ["la la lo " * 150, *PROMPT[1:], "-n", "24", "-c", "4096", "-b", "64", "--ignore-eos"]
    try:
        joined = machines.join()
        code, out, err = ended(machines.run(*own))
        alone = ended(machines.start("run", str(machines.model), *own, "--no-log"))
        assert (code, out) == (0, alone[1]), err
        assert ended(joined)[0] == 0
    finally:
        machines.close()


def test_a_killed_rank_is_one_line_that_names_it(machines: Machines) -> None:
    joined = machines.join()
    running = machines.run(*PROMPT, *FOREVER)
    assert running.stdout is not None
    assert running.stdout.read(1)  # it has begun to answer
    joined.kill()
    code, _, err = ended(running)
    assert code == 1
    assert re.search(r"^error: rank 1 on \S+ has ended or cannot be reached$", err, re.MULTILINE)
    assert "Traceback" not in err


def test_a_first_rank_that_ends_is_one_line(machines: Machines) -> None:
    joined = machines.join()
    running = machines.run(*PROMPT, *FOREVER)
    assert running.stdout is not None
    assert running.stdout.read(1)
    running.kill()
    code, _, err = ended(joined)
    assert code == 1
    assert re.search(r"^error: rank 0 on \S+ (has ended|does not answer)", err, re.MULTILINE)
    assert "Traceback" not in err


def test_another_model_is_refused_by_its_tensor(machines: Machines, tmp_path: Path) -> None:
    other = Path(shutil.copy(demo_model(), tmp_path))
    with other.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    joined = machines.join(other)
    for process in (machines.run(*PROMPT, "-n", "4"), joined):
        code, _, err = ended(process)
        assert code == 1
        assert re.search(r"rank 1 on \S+ has another model than rank 0 on \S+: the tensor", err)


def test_a_server_goes_on_once_the_rank_is_back(machines: Machines) -> None:
    joined, port = machines.join(), str(free_port())
    server = machines.serve(port)
    url = f"http://127.0.0.1:{port}"
    wait_for(url, server)
    text = complete(url)
    joined.kill()
    assert complete(url).startswith("503")
    machines.join()
    assert complete(url) == text
    server.send_signal(signal.SIGTERM)
    assert ended(server)[0] in (0, -signal.SIGTERM, 143)


@pytest.mark.parametrize("name", ["perplexity", "logits", "chat"])
def test_other_commands_say_what_they_say_on_one_machine(
    machines: Machines, name: str, tmp_path: Path
) -> None:
    text, ids = tmp_path / "text.txt", tmp_path / "ids.npy"
    text.write_text("Once upon a time there was a fox who lived in a den. " * 20)
    np.save(ids, np.arange(5, 75))
    own, typed = {
        "perplexity": (["-f", str(text), "-c", "64", "-b", "32"], None),
        "logits": (["--tokens", str(ids), "-b", "32", "--output", str(tmp_path / "x.npy")], None),
        "chat": (["--temp", "0", "-n", "12", "--no-log"], "Hello there\n"),
    }[name]
    joined, said = machines.join(), []
    for hosts in ([], ["--hosts", f"{machines.first},x"]):
        code, out, err = ended(machines.command(name, *own, *hosts), typed)
        assert code == 0, err
        said.append((tmp_path / "x.npy").read_bytes() if name == "logits" else out)
    assert said[0] == said[1]
    assert ended(joined)[0] == 0


def test_bench_measures_all_ranks_together(machines: Machines) -> None:
    joined, own = machines.join(), ["-p", "64", "-n", "4", "-r", "1"]
    code, out, err = ended(machines.command("bench", *own, "--hosts", f"{machines.first},x"))
    assert (code, ended(joined)[0]) == (0, 0), err
    assert "limits: none where layers are on several machines" in out
    assert re.search(r"^pp64 +\d+ +[\d.]+ ± 0\.0", out, re.MULTILINE)


def test_a_server_answers_several_at_once_with_drafts(machines: Machines) -> None:
    joined, port = machines.join(), str(free_port())
    server = machines.serve(port, "--spec-type", "ngram,suffix", "--parallel", "2")
    url = f"http://127.0.0.1:{port}"
    wait_for(url, server)
    text = "one two three four five six seven eight " * 4
    body = {"prompt": text, "max_tokens": 24, "temperature": 0, "ignore_eos": True}

    def ask(_: int) -> str:
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()
        return str(answer["choices"][0]["text"])

    alone = ask(0)
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(ask, range(2)))
    counts = httpx.get(f"{url}/metrics").text
    server.terminate()
    assert together == [alone] * 2
    assert "drafts" not in ended(server)[2]
    ended(joined)
    found = re.findall(r"^sharpi_checked_draft_tokens_total\S* (\S+)$", counts, re.MULTILINE)
    assert sum(map(float, found)) > 0


def test_the_doctor_shows_a_link_each_way(machines: Machines) -> None:
    joined = [machines.join(), machines.join()]
    code, out, err = ended(machines.start("doctor", "--hosts", f"{machines.first},b,c"))
    assert code == 0, err
    assert [ended(process)[0] for process in joined] == [0, 0]
    assert re.search(r"^rank 2   \S+: lo, 127.0.0.1, MTU \d+ bytes$", out, re.MULTILINE)
    rows = re.findall(r"rank (\d) +rank (\d) +[\d.]+ ms +[\d.]+ GB/s", out)
    assert [(int(a), int(b)) for a, b in rows] == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--hosts", "127.0.0.1"), "give two machines or more"),
        (("--hosts", "127.0.0.1:x,b"), "is not a port"),
        (("--link", "lo"), "are of use with --hosts only"),
        (("--hosts", "127.0.0.1,b", "--load", "copy"), "ranks map their layers: omit it"),
        (("--hosts", "127.0.0.1,b", "--link", "nix0"), "there is no such interface"),
    ],
)
def test_bad_options_are_one_line(
    machines: Machines, arguments: Sequence[str], reason: str
) -> None:
    code, _, err = ended(machines.start("run", str(machines.model), "Hi", *arguments))
    assert code in (1, 2)
    assert reason in err
    assert "Traceback" not in err
