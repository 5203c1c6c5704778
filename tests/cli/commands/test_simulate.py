"""`sharpi simulate`: rows, selections, and requests or traces that it refuses in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine, Result

from sharpi.resources import native_library

pytestmark = pytest.mark.native
LIBRARY = native_library()  # before the environment is cleaned, which may name another build


@pytest.fixture(autouse=True)
def built_library(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARPI_NATIVE_LIBRARY", str(LIBRARY))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Writes a trace of sixty tokens, two layers and ten experts, with the first five used more."""
    random = np.random.default_rng(0)
    weights = np.repeat([0.15, 0.05], 5)
    routes = [
        [random.choice(10, 2, False, weights / weights.sum()) for _ in "12"] for _ in "x" * 60
    ]
    path = tmp_path / "trace.npz"
    sizes = np.array([1000, 3000])
    np.savez(path, experts=np.array(routes, np.uint8), lengths=[40, 20], expert_bytes=sizes)
    return str(path)


def rows(result: Result) -> list[dict[str, Any]]:
    assert (result.exit_code, result.err) == (0, "")
    decoded: list[dict[str, Any]] = json.loads(result.out)
    return decoded


def test_every_policy_and_the_optimum(sharpi: CommandLine, trace: str) -> None:
    found = {row["policy"]: row for row in rows(sharpi("simulate", trace, "--slots=4", "--json"))}
    assert list(found) == [
        *("slru", "lru", "lfru", "static", "learned-keep", "learned-prefetch", "optimum"),
    ]
    for row in found.values():
        assert row["slots"] == 4
        assert 0 < row["hit_rate"] < 1
        assert row["loads_per_token"] > 0
    without_prefetch = [row for row in found.values() if not row["early_loads_per_token"]]
    best = max(row["hit_rate"] for row in without_prefetch)
    assert found["optimum"]["hit_rate"] == best


def test_figures_that_can_be_counted(sharpi: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, experts=[[[0, 1]], [[1, 2]], [[0, 1]]], num_experts=4, expert_bytes=10)
    (row,) = rows(sharpi("simulate", str(path), "--slots", "2", "--policy", "lru", "--json"))
    assert row["hit_rate"] == pytest.approx(2 / 6)
    assert row["loads_per_token"] == pytest.approx(4 / 3)
    assert row["bytes_per_token"] == pytest.approx(40 / 3)


def test_slots_policies_and_tokens_are_chosen(sharpi: CommandLine, trace: str) -> None:
    arguments = ("--slots=3,10", "--policy=lru,optimum", "--tokens=50", "--json")
    found = rows(sharpi("simulate", trace, *arguments))
    assert [(row["slots"], row["policy"]) for row in found] == [
        *((3, "lru"), (3, "optimum")),
        *((10, "lru"), (10, "optimum")),
    ]
    assert found[2]["hit_rate"] == found[3]["hit_rate"]  # every expert has a slot


def test_admission_loads_less(sharpi: CommandLine, trace: str) -> None:
    chosen = ("simulate", trace, "--slots=4", "--policy=slru", "--json")
    (plain,), (admission,) = rows(sharpi(*chosen)), rows(sharpi(*chosen, "--admission"))
    assert rows(sharpi(*chosen, "--no-admission"))[0]["hit_rate"] == plain["hit_rate"]
    assert admission["loads_per_token"] < plain["loads_per_token"]


def test_static_sets(sharpi: CommandLine, trace: str) -> None:
    def hit_rate(resident: str) -> float:
        chosen = ("--slots=4", "--policy=static", "--resident", resident, "--json")
        return float(rows(sharpi("simulate", trace, *chosen))[0]["hit_rate"])

    assert hit_rate("first-n") == hit_rate("0-3") > hit_rate("6,7,,8-9")


def test_the_most_used_experts_are_chosen_as_the_engine_chooses_them(
    sharpi: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "t.npz"
    routes = [[[0, 1]]] * 4 + [[[2, 3]]] * 4 + [[[0, 3]]] * 4  # the last four tell nothing new
    np.savez(path, experts=routes, num_experts=4)
    chosen = ("--slots=2", "--policy=static", "--resident=frequency", "--json")
    (row,) = rows(sharpi("simulate", str(path), *chosen, "--warmup-tokens=7"))
    # Experts 0 and 1 first: 4 tokens hit, 3 miss. They stay the most used: then half of the last.
    assert row["hit_rate"] == pytest.approx((8 + 4) / 24)
    (row,) = rows(sharpi("simulate", str(path), *chosen, "--warmup-tokens=11"))
    # By then 0 and 3 are: the last token hits both, the three before it one each.
    assert row["hit_rate"] == pytest.approx((8 + 3 + 2) / 24)
    assert row["loads_per_token"] == pytest.approx(3 / 12)
    (row,) = rows(sharpi("simulate", str(path), *chosen, "--warmup-tokens=4"))
    assert row["hit_rate"] == pytest.approx((8 + 4) / 24)
    assert row["loads_per_token"] == pytest.approx(2 / 12)  # they are the first ones, too


def test_a_trace_that_is_too_short_for_the_most_used_experts(
    sharpi: CommandLine, trace: str
) -> None:
    chosen = ("--slots=4", "--policy=static", "--json")
    result = sharpi("simulate", trace, *chosen, "--resident=frequency")
    assert result.exit_code == 0
    assert "the trace has 60 tokens" in result.err
    assert "are chosen for the last time after 4096" in result.err
    assert (
        json.loads(result.out)[0]["hit_rate"]
        == (rows(sharpi("simulate", trace, *chosen))[0]["hit_rate"])
    )


def test_hit_rates_around_the_warm_pin_make_the_whole(sharpi: CommandLine, trace: str) -> None:
    chosen = ("--slots=4", "--warm-pin=2", "--warm-pin-after=40", "--json")
    for row in rows(sharpi("simulate", trace, *chosen)):
        if row["policy"] in ("static", "optimum"):
            assert row["lookups_before_pin"] is None or row["policy"] == "static"
            continue
        before, lookups = row["lookups_before_pin"], 60 * 2 * 2
        assert 40 <= before < 44
        hits = before * row["hit_rate_before_pin"] + (lookups - before) * row["hit_rate_after_pin"]
        assert hits == pytest.approx(lookups * row["hit_rate"])


def test_what_a_warm_pin_gains_or_loses_is_said(sharpi: CommandLine, trace: str) -> None:
    chosen = ("--slots=4", "--policy=lru,slru", "--warm-pin=2", "--warm-pin-after=40")
    result = sharpi("simulate", trace, *chosen)
    assert "before pin %" in result.out
    assert "4 slots: points of hits by the warm pin: lru " in result.out
    assert "the default policy, learned-prefetch without a pin (" in result.out


def test_more_budget_loads_more_where_prefetches_pay(sharpi: CommandLine, tmp_path: Path) -> None:
    routes = [[[2 * token % 10, (2 * token + 1) % 10]] * 2 for token in range(400)]
    np.savez(
        tmp_path / "turns.npz", experts=np.array(routes, np.uint8), lengths=[400],
        expert_bytes=np.array([1000, 3000]),
    )  # fmt: skip

    def loads(budget: str) -> float:
        chosen = ("--slots=6", "--policy=learned-prefetch", "--load-budget", budget, "--json")
        found = rows(sharpi("simulate", str(tmp_path / "turns.npz"), *chosen))[0]
        return float(found["early_loads_per_token"])

    assert loads("4") > 1.2 * loads("0")


def test_table(sharpi: CommandLine, trace: str) -> None:
    result = sharpi("simulate", trace, "--slots", "4", "--admission")
    assert result.exit_code == 0
    assert result.out.startswith(
        "60 tokens in 2 texts, 2 layers, 10 experts, 2 per token\nslots  policy"
    )
    assert "slru + admission" in result.out
    assert "KiB" in result.out


def test_predictors(sharpi: CommandLine, trace: str) -> None:
    found = rows(sharpi("simulate", trace, "--predictors", "--json"))
    names = [(row["predictor"], row["guesses"]) for row in found]
    assert ("both", 2) in names
    assert ("last-token", 4) in names
    assert all(0 < row["recall"] < 1 for row in found)
    assert "precision %" in sharpi("simulate", trace, "--predictors").out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--slots", "0"), "--slots '0'"),
        (("--slots", "a"), "--slots 'a'"),
        (("--slots", "11"), "the trace has 10 experts"),
        (("--policy", "best"), "--policy 'best': choose all or some of slru"),
        (("--policy", ","), "names none"),
        (("--resident", "12"), "the last one is 9"),
        (("--tokens", "0"), "--tokens"),
        (("--load-budget", "-1"), "--load-budget"),
        (("--policy=lru,lfru", "--admission"), "--admission is for slru, not for --policy lru,l"),
        (("--policy=learned-keep", "--load-budget=2"), "--load-budget is for learned-prefetch"),
        (("--policy=slru", "--moving-slots"), "--moving-slots is for the learned policies"),
        (("--policy=lru", "--resident=0-3"), "--resident is for static, not for"),
        (("--policy=static", "--warm-pin=1"), "--warm-pin is for all policies but static"),
        (("--warm-pin-after=9",), "--warm-pin-after needs --warm-pin N"),
        (("--resident=first-n", "--warmup-tokens=9"), "--warmup-tokens needs --resident frequency"),
        (
            ("--predictors", "--admission"),
            "--admission is for policies; --predictors measures none",
        ),
    ],
)
def test_refused(
    sharpi: CommandLine, trace: str, arguments: tuple[str, ...], complaint: str
) -> None:
    result = sharpi("simulate", trace, *arguments)
    assert (result.exit_code, result.out) == (2, "")
    assert complaint in result.err
    assert result.err.count("\n") == 1


def test_a_file_that_is_no_trace(sharpi: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    path.write_bytes(b"GGUF")
    result = sharpi("simulate", str(path))
    assert (result.exit_code, result.out) == (1, "")
    assert result.err == f"error: {path}: not an .npz file of routes; --moe-trace records one\n"
