"""Random tiny models: weights with enough variance that every mistake shows, and their logits.

Matrices hold values that F16 represents exactly, so an F16 file stores the model without loss.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mxfp4
import numpy as np
import torch
import transformers
from cases import NUM_TOKENS, Case
from numpy.typing import NDArray
from tokenizer import NUM_SPECIAL_TOKENS, VOCAB_SIZE


@dataclass(frozen=True)
class Reference:
    """A model, the token ids (tokens,) it read and the logits (tokens, vocab) it gave."""

    model: transformers.PreTrainedModel
    seed: int
    margin: float
    tokens: NDArray[np.int32]
    logits: NDArray[np.float32]


def make_reference(case: Case) -> Reference:
    """Returns the reference of a case: of its seeds, the one with the clearest routes.

    A route that hangs on the last digit would turn rounding into another answer.
    """
    if not case.num_experts:
        return _make(case, seed=0)
    return max((_make(case, seed) for seed in range(case.num_seeds)), key=lambda each: each.margin)


def _make(case: Case, seed: int) -> Reference:
    model = _build(case)
    _fill(model, torch.Generator().manual_seed(seed))
    _zero(model, case.zeroed)
    ids = np.random.default_rng(seed).integers(NUM_SPECIAL_TOKENS, VOCAB_SIZE, NUM_TOKENS)
    margins: list[float] = []
    for module in _routers(model, case):
        module.register_forward_pre_hook(_margin_hook(margins, case))
    with torch.no_grad(), _noting_choices(model, margins):
        logits = model(torch.from_numpy(ids)[None], use_cache=False).logits[0].numpy()
    return Reference(
        model, seed, min(margins, default=0.0), ids.astype(np.int32), logits.astype(np.float32)
    )


def _build(case: Case) -> transformers.PreTrainedModel:
    model_class = getattr(transformers, case.model_class)
    config = model_class.config_class(**case.settings)
    config.architectures = [case.model_class]
    config._attn_implementation = "eager"
    return model_class(config).to(torch.float32).eval()


def _fill(model: transformers.PreTrainedModel, generator: torch.Generator) -> None:
    for name, buffer in model.named_buffers():
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
        if name.endswith("layer_scalar"):
            buffer.fill_(0.9)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if model.config.model_type == "gpt_oss" and parameter.ndim == 3:
            value = mxfp4.nearest(_gain(name) * parameter.shape[-2] ** -0.5 * noise)
        elif name.endswith("router.scale"):  # Gemma 4 divides by the root of its length
            value = len(noise) ** 0.5 * (1 + 0.2 * noise)
        elif name.endswith("per_expert_scale"):
            value = 1 + 0.2 * noise
        elif name.endswith("e_score_correction_bias"):
            value = 0.05 * noise
        elif name.endswith("norm.weight"):
            value = _norm_mean(name, model.config.model_type) + 0.2 * noise
        elif name.endswith("A_log"):
            value = noise - 1.0
        elif parameter.ndim == 1:
            value = 0.3 * noise
        else:
            value = (_gain(name) * parameter.shape[-1] ** -0.5 * noise).half().float()
        parameter.data.copy_(value)


def _zero(model: transformers.PreTrainedModel, ending: str) -> None:
    for name, parameter in model.named_parameters():
        if ending and name.endswith(ending):
            parameter.data.zero_()


def _norm_mean(name: str, model_type: str) -> float:
    """Returns the mean of a norm's random weights: 0 where the model adds 1 to them."""
    if model_type.startswith(("step3p7", "minimax_m3")):
        return 0.0
    if model_type.startswith(("qwen3_next", "qwen3_5")) and "linear_attn" not in name:
        return 0.0
    if model_type.startswith("gemma4") and ("q_norm" in name or "k_norm" in name):
        return 0.5  # attention is not scaled otherwise
    if model_type.startswith(("gemma4", "exaone4", "olmo2", "olmo3")) and "post_" in name:
        return 0.4
    if model_type.startswith("gemma4"):
        return 1.0
    adds_one = name.endswith("layernorm.weight") or model_type != "muse_glimmer"
    if not adds_one or not model_type.startswith(("gemma", "muse_glimmer")):
        return 1.0
    return -0.6 if "post_" in name and "layernorm" in name else 0.0


def _gain(name: str) -> float:
    """Returns a matrix's gain; branches add less than the embedding, so errors stay small."""
    gains = {
        # Step 3.5: this layer limits silu.
        "language_model.layers.1.mlp.experts.gate_up": 6.0,
        "language_model.layers.1.mlp.experts.down": 0.1,
        "language_model.layers.1.mlp.shared_experts.gate": 10.0,
        "language_model.layers.1.mlp.shared_experts.up": 10.0,
        "language_model.layers.1.mlp.shared_experts.down": 0.05,
        "embed_tokens": 6.0,
        "embeddings": 6.0,
        "mlp.gate.": 2.0,
        "feed_forward.gate.": 2.0,
        "mixer.gate.": 2.0,
        "mixer.out_proj": 0.5,
        "mixer.o_proj": 0.5,
        "mixer.down_proj": 0.4,
        "mixer.experts.down": 0.4,
        "mixer.shared_experts.down": 0.4,
        "conv.out_proj": 0.5,
        "linear_attn.out_proj": 0.25,
        "router": 2.0,
    }
    return next((gain for part, gain in gains.items() if part in name), 1.0)


def _routers(model: transformers.PreTrainedModel, case: Case) -> list[torch.nn.Module]:
    weights = {name: getattr(each, "weight", None) for name, each in model.named_modules()}
    return [
        model.get_submodule(name)
        for name, weight in weights.items()
        if weight is not None and weight.ndim == 2 and weight.shape[0] == case.num_experts
    ]


def _choice(
    module: torch.nn.Module, logits: torch.Tensor, correction: torch.Tensor | None
) -> torch.Tensor:
    """Returns the scores that rank experts: logits with their bias, or corrected scores."""
    bias = getattr(module, "bias", None)
    logits = logits if bias is None else logits + bias
    if correction is None:
        return logits
    is_softmax = hasattr(module, "moe_statics")  # ERNIE's
    return (logits.softmax(dim=-1) if is_softmax else logits.sigmoid()) + correction


def _correction(module: torch.nn.Module) -> torch.Tensor | None:
    owner = getattr(module, "moe_statics", module)
    return getattr(owner, "e_score_correction_bias", None)


def _margin_hook(margins: list[float], case: Case):  # type: ignore[no-untyped-def]
    """Returns a hook that records by how much the last chosen expert leads the first other one."""
    chosen = case.num_used

    def note(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        hidden = inputs[0].reshape(-1, inputs[0].shape[-1])
        correction = inputs[1] if len(inputs) > 1 else _correction(module)
        choice = _choice(module, hidden @ module.weight.T, correction)
        if case.settings.get("n_group", 1) > 1:
            choice = _hide_groups(choice, margins, case)
        if case.model_class.startswith("Phimoe"):
            margins.append(_threshold_margin(choice, chosen))
        margins.append(_lead(choice, chosen))

    return note


def _lead(scores: torch.Tensor, chosen: int) -> float:
    """Returns the least lead of the last chosen score (tokens, scores) over the next."""
    ranked = scores.sort(dim=-1, descending=True).values
    return float((ranked[:, chosen - 1] - ranked[:, chosen]).min())


_HIDDEN = -1e30  # scores of positions that come later are below


@contextmanager
def _noting_choices(model: transformers.PreTrainedModel, margins: list[float]) -> Iterator[None]:
    """Records by how much the last position that an indexer chooses leads the next one."""
    if not any(name.endswith("indexer") for name, _ in model.named_modules()):
        yield
        return
    topk = torch.Tensor.topk

    def note(scores: torch.Tensor, k: int, dim: int = -1, **options: Any) -> Any:
        if scores.ndim > 2 and k < scores.shape[-1]:  # routers have two dimensions
            ranked = scores.sort(dim=-1, descending=True).values
            last, following = ranked[..., k - 1], ranked[..., k]
            leads = (last - following)[following > _HIDDEN]
            margins.append(float(leads.min() / scores[scores.abs() < -_HIDDEN].std()))
        return topk(scores, k, dim=dim, **options)

    torch.Tensor.topk = note  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.topk = topk  # type: ignore[method-assign]


def _hide_groups(choice: torch.Tensor, margins: list[float], case: Case) -> torch.Tensor:
    """Returns the scores without those of the weak groups, ranked by their two best scores."""
    groups = choice.reshape(len(choice), case.settings["n_group"], -1)
    strength = groups.topk(2, dim=-1).values.sum(dim=-1)
    margins.append(_lead(strength, case.settings["topk_group"]))
    kept = strength.topk(case.settings["topk_group"], dim=-1).indices
    mask = torch.full_like(strength, -torch.inf).scatter(1, kept, 0.0)
    return (groups + mask[..., None]).reshape(choice.shape)


def _threshold_margin(logits: torch.Tensor, chosen: int, near: float = 0.02) -> float:
    """Returns the least distance of a logit from the sparse mixer's threshold."""
    peaks = logits.topk(chosen, dim=-1).values
    distance = [
        (peak - logits) - near * torch.maximum(logits.abs(), peak) for peak in peaks.T[..., None]
    ]
    return float(torch.stack(distance).abs().min())
