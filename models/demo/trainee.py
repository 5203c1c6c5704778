"""The demo model in training: configuration, dropout, router logits, losses and optimiser."""

import math

import torch
from corpus import END_ID, MAX_LENGTH, NOT_SCORED, VOCABULARY_SIZE, padded
from torch import Tensor, nn
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

NUM_EXPERTS, NUM_EXPERTS_PER_TOKEN = 16, 2
PEAK_RATE, WEIGHT_DECAY, DROPOUT, BALANCE = 2e-3, 0.1, 0.1, 0.01


def configuration() -> Qwen3MoeConfig:
    """Returns the model's configuration; its row sizes are multiples of 256, as K-quants need."""
    return Qwen3MoeConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=512,
        moe_intermediate_size=256,
        num_experts=NUM_EXPERTS,
        num_experts_per_tok=NUM_EXPERTS_PER_TOKEN,
        norm_topk_prob=True,
        mlp_only_layers=[],
        max_position_embeddings=MAX_LENGTH,
        rope_theta=10000.0,
        tie_word_embeddings=False,
        bos_token_id=END_ID,
        eos_token_id=END_ID,
    )


class Trainee:
    """A model with additions for training: dropout, recorded router logits, and an optimiser."""

    def __init__(self, model: Qwen3MoeForCausalLM) -> None:
        self.model = model
        self.model.set_experts_implementation("grouped_mm")  # 50 times faster on CPU
        self.router_logits: list[Tensor] = []  # one per layer: (tokens, experts)
        self._hook()
        matrices = [p for p in model.parameters() if p.ndim > 1]
        vectors = [p for p in model.parameters() if p.ndim == 1]
        groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(
            groups, lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY, fused=True
        )

    def _hook(self) -> None:
        """Adds hooks for dropout after embeddings and residual branches, and for router logits."""

        def drop(module: nn.Module, _: object, output: Tensor) -> Tensor:
            return nn.functional.dropout(output, DROPOUT, self.model.training)

        def record(module: nn.Module, _: object, output: tuple[Tensor, ...]) -> None:
            self.router_logits.append(output[0].float())

        self.model.model.embed_tokens.register_forward_hook(drop)
        for layer in self.model.model.layers:
            layer.self_attn.o_proj.register_forward_hook(drop)
            layer.mlp.register_forward_hook(drop)
            layer.mlp.gate.register_forward_hook(record)

    def loss(self, tokens: Tensor, labels: Tensor, *, bfloat16: bool = True) -> Tensor:
        """Returns the mean cross-entropy in nats of all labels but NOT_SCORED.

        `tokens`, `labels`: (sequences, time).
        """
        self.router_logits.clear()
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits = self.model(tokens, use_cache=False).logits
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    def step(self, batch: Tensor, rate: float) -> float:
        """Updates the model on a batch with learning rate `rate`; returns the loss before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.loss(batch, batch)
        balance = torch.stack([imbalance(logits) for logits in self.router_logits]).mean()
        (loss + BALANCE * balance).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    @torch.no_grad()
    def evaluate(self, stories: list[list[int]], *, bfloat16: bool = True) -> tuple[float, Tensor]:
        """Returns the mean cross-entropy per token, and each expert's share of the routes.

        The shares have the shape (layers, experts).
        """
        self.model.eval()
        total, count, shares = 0.0, 0, torch.zeros(())
        ordered = sorted(stories, key=len)
        for at in range(0, len(ordered), 16):
            tokens, labels = padded(ordered[at : at + 16])
            scored = int((labels[:, 1:] != NOT_SCORED).sum())
            total += self.loss(tokens, labels, bfloat16=bfloat16).item() * scored
            count += scored
            real = (labels != NOT_SCORED).flatten()
            picked = torch.stack([picked_share(logits[real]) for logits in self.router_logits])
            shares = shares + picked * scored
        self.model.train()
        return total / count, shares / count


def picked_share(logits: Tensor) -> Tensor:
    """Returns each expert's share of the routes (experts,), from logits (tokens, experts)."""
    picks = logits.topk(NUM_EXPERTS_PER_TOKEN, dim=-1).indices.flatten()
    return torch.bincount(picks, minlength=logits.shape[-1]) / picks.numel()


def imbalance(logits: Tensor) -> Tensor:
    """Returns a layer's load balancing loss: experts * sum(share * mean probability).

    It is 1 if the experts are balanced. Source: Fedus et al., Switch Transformers, equation 4;
    computed per layer, since a loss averaged over layers lets each layer starve some experts.
    """
    mean_probability = logits.softmax(-1).mean(0)
    return logits.shape[-1] * (picked_share(logits) * mean_probability).sum()


def balance_entropy(shares: Tensor) -> Tensor:
    """Returns the entropy of expert shares (..., experts), divided by that of equal shares."""
    return torch.special.entr(shares).sum(-1) / math.log(shares.shape[-1])
