"""An MTP head where other ranks run the last layers: its drafts are those of one machine."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from remote_model import remote_model
from scheduled import alone, asked, assert_nothing_is_left, finish, submit
from with_head import with_head

from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.errors import ClusterError
from sharpi.settings import SpeculationConfig as Speculation

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
REFERENCES = Path(__file__).parents[2] / "references" / "data"
IDS = np.random.default_rng(7).integers(3, 280, 400).tolist()
MTP = Speculation(kinds=("mtp",), max_drafts=3)
SIZES = {"context_size": 512, "batch_size": 48, "speculation": MTP}


@pytest.fixture
def headed(tmp_path: Path) -> Callable[[str], Path]:
    return lambda case: with_head(REFERENCES / f"{case}.gguf", tmp_path / f"{case}.gguf")


def counts(engine: Engine) -> tuple[int, int, int]:
    own = engine.speculator.statistics.kinds["mtp"]
    return own.num_proposed, own.num_checked, own.num_accepted


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("case", ["qwen3moe", "qwen3next", "deepseek3"])
def test_drafts_and_text_are_those_of_one_machine(
    case: str, num_ranks: int, headed: Callable[[str], Path], load: Load
) -> None:
    """The head has read a prompt of several chunks, some of which had no outputs."""
    path, request = headed(case), asked(60)
    here, engine = load(path, **SIZES), load(path, **SIZES)
    expected = alone(here, IDS[:170], request)
    far = remote_model(engine, num_ranks)
    scheduler = Scheduler(far, 1)
    heard = submit(scheduler, IDS[:170], request)
    finish(scheduler)
    assert (heard.finish_info.error, heard.text, heard.ids) == (None, *expected)
    assert counts(engine) == counts(here)
    assert counts(engine)[2] > 0
    assert_nothing_is_left(scheduler, far)


@pytest.mark.slow
@pytest.mark.parametrize("is_auto", [False, True])
@pytest.mark.parametrize("case", ["qwen3moe", "qwen3next"])
def test_several_sequences_and_then_one_alone(
    case: str, is_auto: bool, headed: Callable[[str], Path], load: Load
) -> None:
    """Steps of several sequences are in progress at once, each with drafts."""
    prompts, lengths = [IDS[:5], IDS[100:230], IDS[300:364]], (16, 29, 60)
    sizes = SIZES | {"speculation": replace(MTP, is_auto=is_auto)}
    engine = load(headed(case), num_parallel=3, **sizes)
    expected = [alone(engine, p, asked(n)) for p, n in zip(prompts, lengths, strict=True)]
    before = counts(engine)
    far = remote_model(engine, 2)
    scheduler = Scheduler(far, 3)
    heard = [submit(scheduler, p, asked(n)) for p, n in zip(prompts, lengths, strict=True)]
    finish(scheduler)
    assert [(each.text, each.ids) for each in heard] == expected
    if not is_auto:
        assert counts(engine)[1] > before[1]
        assert far.remote.num_checks_beside_others > 3
    assert_nothing_is_left(scheduler, far)


def test_a_rank_lost_within_a_prompt_ends_the_answer(
    headed: Callable[[str], Path], load: Load
) -> None:
    far = remote_model(load(headed("qwen3moe"), **SIZES), 2)
    scheduler = Scheduler(far, 1)
    heard = submit(scheduler, IDS, asked(20))
    scheduler.step()

    def lost(*_: object) -> None:
        raise ClusterError("rank 1 on b has ended")

    far.remote.receive = lost
    finish(scheduler)
    assert str(heard.finish_info.error) == "rank 1 on b has ended"
    assert not heard.ids
    assert_nothing_is_left(scheduler, far)
