"""Measures the next turn of a long conversation with and without a prompt cache on disk.

Each turn runs in a new process, as after a restart. The files of the prompt cache are read once
from the disk, after they were dropped from the page cache, and once from the page cache. For
comparison, the time to only read the same files is measured in both states.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

QUESTION_TOKENS = 24
PIECE = 8 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=6000, help="of the conversation before")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        print(json.dumps(answer(given)))
        return
    with TemporaryDirectory(prefix="prompts-", dir=Path.cwd()) as folder:
        measure(given, Path(folder))


def answer(given: argparse.Namespace) -> dict[str, float]:
    """Computes one turn; returns the seconds to its first token and the number of cached tokens.

    Also returns the seconds in which the engine closes, and the first token.
    """
    from sharpi.engine.loader import load_engine
    from sharpi.settings import GenerationRequest, RunConfig, SamplingParams

    turn, _, folder = given.worker.partition(":")
    config = RunConfig(
        model=given.model,
        context_size=given.tokens + 256,
        kv_type=given.kv_type,
        prompt_cache=Path(folder) if folder else None,
        prompt_cache_bytes=1 << 40,
    )
    ids = np.random.default_rng(1).integers(300, 1500, given.tokens + QUESTION_TOKENS).tolist()
    prompt = ids[: given.tokens] if turn == "first" else ids
    greedy = SamplingParams(temperature=0)
    request = GenerationRequest(max_tokens=1, ignore_end=True, sampling=greedy)
    with load_engine(config) as engine:
        session = engine.session()
        if turn == "memory":
            list(session.generate(ids[: given.tokens], request))
        generation = session.generate(prompt, request)
        list(generation)
        start = time.perf_counter()
    return {
        "first_token": generation.timings.first_token_seconds or 0.0,
        "found": generation.timings.num_cached_tokens,
        "closing": time.perf_counter() - start,
        "token": generation.ids[0],
    }


def asked(given: argparse.Namespace, turn: str) -> dict[str, float]:
    """Runs `answer` for one turn in a new process and returns its result."""
    command = [sys.executable, __file__, *sys.argv[1:], "--worker", turn]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.kv"))


def drop(paths: list[Path]) -> None:
    """Drops files from the page cache."""
    os.sync()
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_seconds(paths: list[Path]) -> float:
    """Returns the seconds needed to read all files, one after the other."""
    buffer = bytearray(PIECE)
    start = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - start


def measure(given: argparse.Namespace, folder: Path) -> None:
    first = asked(given, f"first:{folder}")
    paths = files_of(folder)
    size = sum(path.stat().st_size for path in paths)
    print(f"{given.model.name}, {given.tokens} tokens before, {size / 2**20:.0f} MiB on disk")
    print(f"first turn {first['first_token']:.2f} s, then {first['closing']:.2f} s of writing")
    rows: dict[str, list[float]] = {}
    tokens = set()
    for _ in range(given.rounds):
        for name, turn, is_cold in (
            ("without", "next:", False),
            ("from memory", "memory:", False),
            ("from the disk", f"next:{folder}", True),
            ("from the page cache", f"next:{folder}", False),
        ):
            if turn.endswith(str(folder)):
                copy = Path(f"{folder}-copy")  # each turn adds its own question
                shutil.copytree(folder, copy)
                if is_cold:
                    drop(files_of(copy))
                found = asked(given, f"next:{copy}")
                shutil.rmtree(copy)
            else:
                found = asked(given, turn)
            tokens.add(found["token"])
            rows.setdefault(f"next turn {name}", []).append(found["first_token"])
        drop(paths)
        rows.setdefault("reading the files, disk", []).append(read_seconds(paths))
        rows.setdefault("reading the files, page cache", []).append(read_seconds(paths))
    for name, values in rows.items():
        print(f"{name:32} {median(values):8.3f} s  ({min(values):.3f} to {max(values):.3f})")
    print("the same token in all turns" if len(tokens) == 1 else f"tokens differ: {tokens}")


if __name__ == "__main__":
    main()
