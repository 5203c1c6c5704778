"""Measures the figures of the model card: a checkpoint compared with GGUF files made from it.

usage: measure.py TEXT CHECKPOINT_DIR GGUF... > measured.json

The checkpoint runs in torch with float32; the files run in llama.cpp through llama-cpp-python.
Perplexity is that of the held-out stories, each in a separate sequence that ends with END.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpus import END_ID, MAX_LENGTH, encode, read_stories
from llama_cpp import Llama
from numpy.typing import NDArray
from tokenizers import Tokenizer
from trainee import Trainee, balance_entropy
from transformers import Qwen3MoeForCausalLM

Logits = NDArray[np.float32]

PROMPT, NUM_SAMPLES, NUM_COMPARED = "Once upon a time", 5, 8


def torch_numbers(trainee: Trainee, stories: list[list[int]]) -> dict[str, Any]:
    """Returns the checkpoint's perplexity, and the balance of each layer's router."""
    loss, shares = trainee.evaluate(stories, bfloat16=False)
    layers = zip(balance_entropy(shares).tolist(), shares.tolist(), strict=True)
    routers = [
        {"entropy": round(entropy, 4), "least": round(min(s), 4), "most": round(max(s), 4)}
        for entropy, s in layers
    ]
    return {"loss": round(loss, 4), "perplexity": round(math.exp(loss), 3), "routers": routers}


def logits_in_llama(model: Llama, tokens: list[int]) -> Logits:
    """Returns llama.cpp's logits (time, vocabulary) after each of `tokens`."""
    model.reset()
    model.eval(tokens)
    return model.scores[: len(tokens)].copy()


def negative_log_likelihood(logits: Logits, labels: list[int]) -> float:
    """Returns the sum over time of -log p(label), in nats."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(-1))
    return float((log_sums - shifted[np.arange(len(labels)), labels]).sum())


def file_numbers(model: Llama, trainee: Trainee, stories: list[list[int]]) -> dict[str, Any]:
    """Returns a GGUF file's perplexity, and the error of its logits relative to the checkpoint."""
    total, count, errors, agreed = 0.0, 0, [], []
    trainee.model.eval()
    for index, story in enumerate(stories):
        closed = [*story, END_ID][:MAX_LENGTH]
        logits = logits_in_llama(model, closed[:-1])
        total += negative_log_likelihood(logits, closed[1:])
        count += len(closed) - 1
        if index < NUM_COMPARED:
            with torch.no_grad():
                wanted = trainee.model(torch.tensor([closed[:-1]])).logits[0].numpy()
            errors.append(np.linalg.norm(logits - wanted) / np.linalg.norm(wanted))
            agreed.append((logits.argmax(-1) == wanted.argmax(-1)).mean())
    return {
        "loss": round(total / count, 4),
        "perplexity": round(math.exp(total / count), 3),
        "logits_relative_error": float(f"{np.mean(errors):.2g}"),
        "same_first_choice": round(float(np.mean(agreed)), 4),
    }


def samples(model: Llama) -> list[str]:
    """Returns NUM_SAMPLES stories, sampled at temperature 0.8 and top-k 40, one for each seed."""
    texts = []
    for seed in range(1, NUM_SAMPLES + 1):
        model.reset()
        answer = model(PROMPT, max_tokens=400, temperature=0.8, top_k=40, seed=seed)
        choice = answer["choices"][0]
        texts.append(f"{PROMPT}{choice['text']} [{choice['finish_reason']}]")
    return texts


def measure(text: Path, checkpoint: Path, files: list[Path]) -> dict[str, Any]:
    """Returns the figures of the checkpoint and of each file by name, and samples.

    The samples are those of the last file.
    """
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    stories = encode(tokenizer, read_stories(text)[1])
    trainee = Trainee(Qwen3MoeForCausalLM.from_pretrained(checkpoint))
    numbers: dict[str, Any] = {"checkpoint": torch_numbers(trainee, stories)}
    for file in files:
        model = Llama(
            str(file), n_ctx=MAX_LENGTH, n_batch=MAX_LENGTH, logits_all=True, verbose=False
        )
        numbers[file.name] = file_numbers(model, trainee, stories)
        numbers["samples"] = samples(model)
    return numbers


def main() -> None:
    """Parses the command line, and prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    print(json.dumps(measure(given.text, given.checkpoint, given.files), indent=1))


if __name__ == "__main__":
    main()
