#!/usr/bin/env python3
"""Chooses a storage format with rooflined, quantises with torchao, and measures what that costs and gains.

    torchao_quantize.py TEXT [--seconds S] [--steps N] [--max-quality-loss RATIO]

A small Llama-like model of bytes is trained on the first nine tenths of TEXT for N steps, so that its logits mean something. Then
fp16, int8 and int4 are predicted, stored with `quantize_`, timed at decoding for S seconds each, held against fp16 on the last
tenth (Kullback-Leibler divergence of the logits, perplexity), and reported to the daemon. Needs torch and torchao; runs on the
CPU, which has to be what the daemon predicts for.

Exit codes: 0 done, 1 the daemon cannot be asked or recommends nothing.
"""

import argparse
import copy
import math
import pathlib
import platform
import statistics
import sys
import time

import rooflined
import torch
from torch import nn
from torch.nn import functional
from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
from torchao.quantization import Int8WeightOnlyConfig, quantize_

# As a config.json has it; the daemon gets the same.
CONFIG = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 256, "tie_word_embeddings": False, "torch_dtype": "float16",
}
CONTEXT = 128
# What the line `apply.settings.torchao` of a recommendation says, by format.
STORED = {"fp16": None, "int8": Int8WeightOnlyConfig(), "int4_g32": PrototypeInt4WeightOnlyConfig(group_size=32)}


class Layer(nn.Module):
    def __init__(self, hidden, inner, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, state, cache=None):
        batch, tokens, hidden = state.shape
        normed = self.norm1(state)
        q, k, v = (part(normed).view(batch, tokens, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        if cache is not None:
            cache[0][:, :, -1:], cache[1][:, :, -1:] = k, v
            k, v = cache
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        state = state + self.o(mixed.transpose(1, 2).reshape(batch, tokens, hidden))
        normed = self.norm2(state)
        return state + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Model(nn.Module):
    """Positions are learned for lack of rotation, which costs next to nothing either way."""

    def __init__(self, config):
        super().__init__()
        hidden = config["hidden_size"]
        self.embed, self.place = nn.Embedding(config["vocab_size"], hidden), nn.Embedding(CONTEXT, hidden)
        self.layers = nn.ModuleList(
            Layer(hidden, config["intermediate_size"], config["num_attention_heads"]) for _ in range(config["num_hidden_layers"]))
        self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, config["vocab_size"], bias=False)

    def forward(self, tokens, caches=None):
        places = torch.full_like(tokens, CONTEXT - 1) if caches else torch.arange(tokens.shape[1]).expand_as(tokens)
        state = self.embed(tokens) + self.place(places)
        for index, layer in enumerate(self.layers):
            state = layer(state, caches[index] if caches else None)
        return self.head(self.norm(state))


def train(model, text, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        starts = torch.randint(0, len(text) - CONTEXT - 1, (4,)).tolist()
        batch = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def judged(model, text, reference=None):
    """Logits, perplexity of the text, and the mean divergence in nats of a token from the reference's logits."""
    count = min(8, (len(text) - 1) // CONTEXT)
    inputs = text[: count * CONTEXT].view(count, CONTEXT)
    targets = text[1 : count * CONTEXT + 1]
    with torch.inference_mode():
        logs = functional.log_softmax(model(inputs).float().flatten(0, 1), -1)
    perplexity = math.exp(functional.nll_loss(logs, targets))
    apart = None if reference is None else float(functional.kl_div(logs, reference, log_target=True, reduction="batchmean"))
    return logs, perplexity, apart


def decoded(model, kind, seconds):
    """Tokens/s of one sequence with CONTEXT tokens in the cache, by the middle of all steps, and how many there were."""
    heads, width = CONFIG["num_attention_heads"], CONFIG["hidden_size"] // CONFIG["num_attention_heads"]
    caches = [(torch.randn(1, heads, CONTEXT, width).to(kind), torch.randn(1, heads, CONTEXT, width).to(kind)) for _ in model.layers]
    token, times = torch.zeros(1, 1, dtype=torch.long), []
    with torch.inference_mode():
        for _ in range(5):
            model(token, caches)
        end = time.monotonic() + seconds
        while not times or time.monotonic() < end:
            began = time.perf_counter()
            token = model(token, caches).argmax(-1)
            times.append(time.perf_counter() - began)
    return 1 / statistics.median(times), len(times)


def workload(format_name, threads):
    return {"model": CONFIG, "format": format_name, "phase": "decode", "context_tokens": CONTEXT, "threads": threads}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--max-quality-loss", type=float, default=0.05, help="expected rise of perplexity, as a ratio [0.05]")
    given = parser.parse_args()
    torch.manual_seed(1)
    text = torch.frombuffer(bytearray(given.text.read_bytes()), dtype=torch.uint8).long()
    known, unseen = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    base = Model(CONFIG)
    train(base, known, given.steps)

    with rooflined.Client() as client:
        free = workload(None, None)
        advice = client.recommend(
            {key: value for key, value in free.items() if value is not None}, engine="torch", objective="latency",
            freedom={"formats": list(STORED)}, constraints={"max_quality_loss_ratio": given.max_quality_loss})
        decision = advice.get("decision")
        if not decision:
            sys.exit(f"error: nothing is recommended: {advice['reason']}")
        print(f"recommended: {advice['reason']}\n  {advice['apply']['settings']['torch']}")
        threads = decision.get("threads") or torch.get_num_threads()
        torch.set_num_threads(threads)

        reference = None
        print(f"\nmeasured on {platform.node()}, {platform.machine()}, {threads} threads, torch {torch.__version__}, weights trained here")
        print("format     predicted/s (90 %)          measured/s  then predicted/s   KL nats  perplexity")
        # The reference first.
        for name, config in STORED.items():
            # fp16 as it is; quantised weights are multiplied with bf16 on a CPU.
            kind = torch.float16 if config is None else torch.bfloat16
            model = copy.deepcopy(base).to(kind)
            if config is not None:
                quantize_(model, config)
            before = client.predict(workload(name, threads), engine="torch")["tokens_per_s"]
            rate, steps = decoded(model, kind, given.seconds)
            logs, perplexity, apart = judged(model, unseen, reference)
            reference = logs if reference is None else reference
            notes = []
            try:
                report = client.observe(workload(name, threads), engine="torch", tokens_per_s=rate)
                notes = list(report.get("warnings") or [])
                after = f"{client.predict(workload(name, threads), engine='torch')['tokens_per_s']['value']:16.1f}"
            except rooflined.Refused as error:
                # Such as one that is 50 times off.
                after = f"{error.code:>16}"
            print(f"{name:<9} {before['value']:8.1f} ({before['low']:.1f} to {before['high']:.1f})".ljust(36),
                  f"{rate:12.1f} {after} {'-' if apart is None else f'{apart:.5f}':>9} {perplexity:11.3f}  ({steps} steps)", *(f"\n  {note}" for note in notes), flush=True)


if __name__ == "__main__":
    try:
        main()
    except rooflined.RooflinedError as error:
        sys.exit(f"error: {error}")
