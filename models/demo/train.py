"""The training recipe of the demo model: a story-telling qwen3moe, from scratch, on CPU.

usage: train.py TEXT OUT_DIR [--minutes 79] [--epochs 30] [--resume CHECKPOINT_DIR]

TEXT is a file of stories separated by <|endoftext|>. OUT_DIR receives the tokenizer, the
checkpoint with the lowest held-out loss and curve.json. Written with Python 3.11, torch
2.13.0, transformers 5.23.0 and tokenizers 0.23.3. On a busy machine, set GOMP_SPINCOUNT=0,
or threads waste CPU time by spinning while they wait for each other.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from corpus import END, encode, read_stories, train_tokenizer, windows
from tokenizers import Tokenizer
from torch import Tensor
from trainee import PEAK_RATE, Trainee, balance_entropy, configuration
from transformers import PreTrainedTokenizerFast, Qwen3MoeForCausalLM

SEED, TOKENS_PER_STEP, EVALUATE_EVERY, WARM_UP_STEPS, LAST_RATE = 0, 4096, 100, 100, 0.01
BPE_DROPOUT, BPE_DROPOUT_UNTIL, LONG_WINDOWS_FROM = 0.1, 0.6, 0.7


@dataclass(frozen=True)
class Budget:
    """Limits of training in wall-clock minutes and epochs; training ends at the first one."""

    minutes: float
    epochs: float
    begun: float = 0.0  # the fraction of the schedule that earlier runs have completed
    started: float = field(default_factory=time.monotonic)

    def minutes_used(self) -> float:
        """Returns wall-clock minutes since the start, including pauses of the process."""
        return (time.monotonic() - self.started) / 60

    def progress(self, epochs_done: float) -> float:
        """Returns the completed fraction of the schedule; training ends at 1 or more."""
        done = max(self.minutes_used() / self.minutes, epochs_done / self.epochs)
        return self.begun + (1 - self.begun) * done


@dataclass
class Record:
    """Saves the validation curve and the best checkpoint so far in the folder `out`."""

    out: Path
    budget: Budget
    points: list[dict[str, float]] = field(default_factory=list)
    best: float = math.inf
    minutes_before: float = 0.0

    def continue_from(self, checkpoint: Path) -> int:
        """Loads an earlier run's curve up to its best point, and returns the step of this point.

        The checkpoint was saved at this point.
        """
        points = json.loads((checkpoint / "curve.json").read_text(encoding="utf-8"))
        last = min(points, key=lambda point: point["held_out"])
        self.points = points[: points.index(last) + 1]
        self.best, self.minutes_before = last["held_out"], last["minutes"]
        return int(last["step"])

    def add(
        self,
        trainee: Trainee,
        stories: list[list[int]],
        step: int,
        progress: float,
        loss: float,
    ) -> None:
        """Adds held-out loss and router balance to the curve; saves the model if it is the best."""
        minutes = self.minutes_before + self.budget.minutes_used()
        held_out, shares = trainee.evaluate(stories)
        entropy = balance_entropy(shares).min().item()
        point = {"minutes": minutes, "step": step, "tokens": step * TOKENS_PER_STEP}
        point |= {"progress": progress, "train": loss, "held_out": held_out}
        point |= {"least_router_entropy": entropy}
        self.points.append({name: round(value, 4) for name, value in point.items()})
        print(json.dumps(self.points[-1]), flush=True)
        (self.out / "curve.json").write_text(json.dumps(self.points, indent=1), encoding="utf-8")
        if held_out < self.best:
            self.best = held_out
            trainee.model.save_pretrained(self.out)


def rate_at(steps: int, progress: float) -> float:
    """Returns the learning rate: a linear warm-up, multiplied by a cosine decay from PEAK_RATE.

    `steps`: the steps of this run so far. `progress`: the completed fraction of the schedule.
    """
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return (
        PEAK_RATE * min(1.0, (steps + 1) / WARM_UP_STEPS) * (LAST_RATE + (1 - LAST_RATE) * cosine)
    )


def batches(
    tokenizer: Tokenizer, stories: list[str], budget: Budget
) -> Iterator[tuple[Tensor, float]]:
    """Yields batches and the completed fraction of the schedule, until it reaches 1.

    Each epoch is tokenized and shuffled again.
    """
    epoch, progress = 0, budget.progress(0)
    while True:
        # Late epochs see the text in the form of a prompt: plain BPE, whole stories.
        dropout = BPE_DROPOUT * max(0.0, 1 - progress / BPE_DROPOUT_UNTIL)
        length = 512 if progress > LONG_WINDOWS_FROM else 256
        packed = list(windows(encode(tokenizer, stories, dropout), length))
        size = TOKENS_PER_STEP // length
        for at in range(0, len(packed) - size + 1, size):
            progress = budget.progress(epoch + at / len(packed))
            if progress >= 1:
                return
            yield torch.tensor(packed[at : at + size]), progress
        epoch += 1


def begin(out: Path, budget: Budget, resume: Path | None) -> tuple[Trainee, Record, int]:
    """Returns a new model, or the checkpoint at `resume`, with its record and number of steps.

    The optimiser's moments are not saved, so a resumed run warms up again.
    """
    record = Record(out, budget)
    if resume is None:
        return Trainee(Qwen3MoeForCausalLM(configuration())), record, 0
    step = record.continue_from(resume)
    return Trainee(Qwen3MoeForCausalLM.from_pretrained(resume)), record, step


def train(text: Path, out: Path, budget: Budget, resume: Path | None) -> None:
    """Trains on the stories in `text`; saves tokenizer, best checkpoint and curve in `out`."""
    training, held_out_stories = read_stories(text)
    tokenizer = train_tokenizer(training)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END
    ).save_pretrained(out)
    held_out = encode(tokenizer, held_out_stories)
    trainee, record, first_step = begin(out, budget, resume)
    step, smooth = first_step, math.nan
    for batch, progress in batches(tokenizer, training, budget):
        loss = trainee.step(batch, rate_at(step - first_step, progress))
        step += 1
        smooth = loss if math.isnan(smooth) else 0.98 * smooth + 0.02 * loss
        if step % EVALUATE_EVERY == 0:
            record.add(trainee, held_out, step, progress, smooth)
    record.add(trainee, held_out, step, 1.0, smooth)


def main() -> None:
    """Parses the command line, seeds the random generators, and trains."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=79.0)
    parser.add_argument("--epochs", type=float, default=30.0)
    parser.add_argument("--resume", type=Path, help="go on from this checkpoint")
    parser.add_argument("--begun", type=float, default=0.0, help="part of the schedule done")
    given = parser.parse_args()
    random.seed(SEED)
    torch.manual_seed(SEED)
    train(given.text, given.out, Budget(given.minutes, given.epochs, given.begun), given.resume)


if __name__ == "__main__":
    main()
