#!/usr/bin/env python3
"""Holds the memory that rooflined predicts for GGUF files in llama.cpp against llama.cpp's own count: memory.py BINARIES

BINARIES holds rooflined. For every architecture a file without weights is made, and both are asked at several contexts, slots,
cache formats and physical batches. Model and context (keys, values and states) have to agree within 1 %, the total within 5 %.

    memory.py BINARIES             all models; the table at the end is that of docs/internals/engine-tests.md
    memory.py BINARIES NAME…       these models alone, every run printed

Exit codes: 0 all agree, 1 one does not, 2 usage.
"""

import collections
import math
import pathlib
import sys
import tempfile

import oracle
from loop import Daemon

MOST_CONTEXT, MOST_TOTAL = 0.01, 0.05

# Context of one slot, and what differs from llama.cpp's defaults.
RUNS = (
    (4096, {}),
    (1000, {}),
    (32768, {}),
    (4096, {"slots": 4}),
    (8192, {"type_k": "q8_0"}),
    (16384, {"slots": 2, "type_k": "q4_0", "ubatch": 256}),
    (8192, {"ubatch": 2048}),
    (512, {"slots": 16}),
)


def attention(architecture, hidden, inner, heads, kv_heads, width, vocab, layers=4, **more):
    """Metadata of a decoder with attention in every layer; names of `more` have _ for a dot."""
    return architecture, {
        "context_length": 131072, "block_count": layers, "embedding_length": hidden, "feed_forward_length": inner,
        "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": width,
        "attention.value_length": width, "rope.dimension_count": width, "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.layer_norm_epsilon": 1e-6, "vocab_size": vocab, **more,
    }


def experts(count, used, inner, **more):
    return {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": inner, **more}


def mamba(inner, state, heads, groups, kernel=4):
    return {
        "ssm.conv_kernel": kernel, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": heads,
        "ssm.group_count": groups,
    }


def window(tokens, pattern=None):
    of = {"attention.sliding_window": tokens}
    return of if pattern is None else {**of, "attention.sliding_window_pattern": pattern}


LATENT = {
    "attention.kv_lora_rank": 512, "attention.q_lora_rank": 1536, "rope.dimension_count": 64, "leading_dense_block_count": 1,
    "expert_shared_count": 1, "expert_weights_scale": 1.0, "expert_gating_func": 2,
}
ABSORBED = {
    **LATENT, "attention.key_length": 576, "attention.value_length": 512, "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
}
LOCAL_5 = [True, True, True, True, False]

MODELS = {
    "llama-3-8b": attention("llama", 4096, 14336, 32, 8, 128, 128256),
    "llama-2-7b": attention("llama", 4096, 11008, 32, 32, 128, 32000),
    "smollm2-135m": attention("llama", 576, 1536, 9, 3, 64, 49152, 30, tied=True),
    "mixtral-8x7b": attention("llama", 4096, 14336, 32, 8, 128, 32000, **experts(8, 2, 14336)),
    "qwen2-0.5b": attention("qwen2", 896, 4864, 14, 2, 64, 151936, 24, tied=True),
    "qwen3-8b": attention("qwen3", 4096, 12288, 32, 8, 128, 151936),
    "qwen3-30b-a3b": attention("qwen3moe", 2048, 6144, 32, 4, 128, 151936, **experts(128, 8, 768)),
    "qwen2-57b-a14b": attention("qwen2moe", 3584, 18944, 28, 4, 128, 151936, **experts(64, 8, 2560,
        **{"expert_shared_feed_forward_length": 20480})),
    "gemma-2-9b": attention("gemma2", 3584, 14336, 16, 8, 256, 256000, 6, tied=True, **window(4096)),
    "gemma-3-4b": attention("gemma3", 2560, 10240, 8, 4, 256, 262144, 34, tied=True, **window(1024)),
    "gemma-3n-e2b": attention("gemma3n", 2048, 8192, 8, 2, 256, 262144, 30, tied=True,
        **window(512, ([True] * 4 + [False]) * 6), **{
        "embedding_length_per_layer_input": 256, "attention.shared_kv_layers": 10}),
    "gemma-4-e2b": attention("gemma4", 1536, 6144, 8, 1, 512, 262144, 35, tied=True, **window(512, LOCAL_5 * 7), **{
        "embedding_length_per_layer_input": 256, "attention.shared_kv_layers": 20, "attention.key_length_swa": 256,
        "attention.value_length_swa": 256, "rope.dimension_count_swa": 256}),
    "gemma-4-26b-a4b": attention("gemma4", 2816, 2112, 16, [8, 8, 8, 8, 8, 2] * 2, 512, 262144, 12, tied=True,
        **window(1024, ([True] * 5 + [False]) * 2), **{
        **experts(128, 8, 704), "embedding_length_per_layer_input": 0, "attention.key_length_swa": 256, "attention.value_length_swa": 256,
        "rope.dimension_count_swa": 256}),
    "mimo-v2-flash": attention("mimo2", 4096, 16384, 64, [4, 8, 8, 8] * 2, 192, 152576, 8,
        **window(128, [False, True, True, True] * 2), **{
        **experts(256, 8, 2048), "attention.value_length": 128, "attention.key_length_swa": 192, "attention.value_length_swa": 128,
        "rope.dimension_count": 64}),
    "step-3.5-flash": attention("step35", 4096, 11264, [64, 96, 96, 96] * 2, 8, 128, 128896, 8,
        **window(512, [False, True, True, True] * 2), **{
        **experts(288, 8, 1280), "expert_shared_feed_forward_length": 1280, "attention.key_length_swa": 128, "attention.value_length_swa": 128}),
    "deepseek-v3.2": attention("deepseek32", 7168, 18432, 128, 1, 192, 129280, **{**experts(256, 8, 2048), **ABSORBED,
        "attention.indexer.head_count": 64, "attention.indexer.key_length": 128, "attention.indexer.top_k": 2048}),
    "glm-4.5-air": attention("glm4moe", 4096, 10944, 96, 8, 128, 151552, 5, **experts(128, 8, 1408), **{
        "expert_shared_count": 1, "leading_dense_block_count": 1, "expert_weights_scale": 1.0, "expert_gating_func": 2}),
    "gemma-2-old": attention("gemma2", 2304, 9216, 8, 4, 256, 256000, 6, tied=True),
    "phi-4-mini": attention("phi3", 3072, 8192, 24, 8, 128, 200064, tied=True),
    "phi-3-mini": attention("phi3", 3072, 8192, 32, 32, 96, 32064, **window(2047)),
    "gpt-oss-20b": attention("gpt-oss", 2880, 2880, 64, 8, 64, 201088, 8, **experts(32, 4, 2880), **window(128)),
    "granite-3-moe": attention("granitemoe", 1536, 512, 24, 8, 64, 49155, tied=True, **experts(40, 8, 512),
        **{"logit_scale": 6.0, "residual_scale": 0.22, "embedding_scale": 12.0, "attention.scale": 0.015625}),
    "llama-4-scout": attention("llama4", 5120, 16384, 40, 8, 128, 202048, 8, **experts(16, 1, 8192),
        **{"interleave_moe_layer_step": 1}),
    "command-r7b": attention("cohere2", 4096, 14336, 32, 8, 128, 256000, 8, tied=True, logit_scale=0.25, **window(4096)),
    "olmo-2-7b": attention("olmo2", 4096, 11008, 32, 32, 128, 100352),
    "glm-4-9b": attention("glm4", 4096, 13696, 32, 2, 128, 151552),
    "falcon-7b": attention("falcon", 4544, 18176, 71, 1, 64, 65024),
    "starcoder2-3b": attention("starcoder2", 3072, 12288, 24, 2, 128, 49152),
    "gpt2-xl": attention("gpt2", 1600, 6400, 25, 25, 64, 50257, tied=True),
    "stablelm-3b": attention("stablelm", 2560, 6912, 32, 32, 80, 50304, use_parallel_residual=False),
    "smollm3-3b": attention("smollm3", 2048, 11008, 16, 4, 128, 128256, tied=True),
    "deepseek-v3": attention("deepseek2", 7168, 18432, 128, 1, 192, 129280, **{**experts(256, 8, 2048), **ABSORBED}),
    "deepseek-v2-lite-old": attention("deepseek2", 2048, 10944, 16, 16, 192, 102400, 27, **{
        **experts(64, 6, 1408), **LATENT, "attention.q_lora_rank": None, "attention.value_length": 128, "expert_shared_count": 2}),
    "qwen3-next-80b": attention("qwen3next", 2048, 5120, 16, 2, 256, 151936, 8, **experts(512, 10, 512),
        **mamba(4096, 128, 32, 16), **{
        "expert_shared_feed_forward_length": 512}),
    "qwen3.5-4b": attention("qwen35", 2560, 9216, 16, 4, 256, 248320, 8, **mamba(4096, 128, 32, 16),
        **{"rope.dimension_sections": [11, 11, 10, 0]}),
    "qwen3.5-35b-a3b": attention("qwen35moe", 2048, 5504, 16, 2, 256, 248320, 8, **experts(256, 8, 512),
        **mamba(4096, 128, 32, 16), **{
        "expert_shared_feed_forward_length": 512, "rope.dimension_sections": [11, 11, 10, 0]}),
    "granite-4-h-tiny": attention("granitehybrid", 1536, 512, 12, [0, 0, 0, 4, 0, 0, 0, 4], 128, 100352, 8, tied=True,
        **experts(64, 6, 512), **mamba(3072, 128, 48, 1), **{
        "expert_shared_feed_forward_length": 1024}),
    "nemotron-h-8b": attention("nemotron_h", 4096, [0, 21504, 0, 21504, 0, 21504, 0, 21504], 32, [0, 0, 0, 0, 8, 0, 0, 0], 128, 131072, 8, **mamba(8192, 128, 128, 8)),
    "falcon-h1-1.5b": attention("falcon-h1", 2048, 4096, 8, 2, 128, 65537, **mamba(3072, 256, 48, 1)),
    "jamba-mini": attention("jamba", 4096, 14336, 32, [0, 0, 0, 8, 0, 0, 0, 8], 128, 65536, 8, **experts(16, 2, 14336), **{
        **mamba(8192, 16, 256, 0)}),
    "lfm2-1.2b": attention("lfm2", 2048, 8192, 32, [0, 0, 8, 0, 0, 8, 0, 0], 64, 65536, 8, tied=True, **{"shortconv.l_cache": 3}),
    "kimi-linear-48b": attention("kimi-linear", 2304, 9216, 32, [0, 0, 0, 1, 0, 0, 0, 1], 192, 163840, 8,
        **{**experts(256, 8, 1024), **ABSORBED,
        "attention.q_lora_rank": None, "ssm.conv_kernel": 4, "kda.head_dim": 128}),
    "mamba2-2.7b": ("mamba2", {
        "context_length": 1048576, "block_count": 8, "embedding_length": 2560, "feed_forward_length": 0, "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": 50288, "tied": True, **mamba(5120, 128, 80, 1)}),
    "mamba-2.8b": ("mamba", {
        "context_length": 1048576, "block_count": 8, "embedding_length": 2560, "feed_forward_length": 0, "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": 50280, "tied": True, **mamba(5120, 16, 160, 0)}),
    "rwkv7-2.9b": ("rwkv7", {
        "context_length": 1048576, "block_count": 8, "embedding_length": 2560, "feed_forward_length": 10240, "attention.head_count": 0,
        "attention.layer_norm_epsilon": 1e-5, "vocab_size": 65536, "wkv.head_size": 64, "attention.decay_lora_rank": 96,
        "attention.iclr_lora_rank": 96, "attention.value_residual_mix_lora_rank": 64, "attention.gate_lora_rank": 320, "token_shift_count": 2}),
    "bge-m3": ("bert", {
        "context_length": 8192, "block_count": 24, "embedding_length": 1024, "feed_forward_length": 4096, "attention.head_count": 16,
        "attention.layer_norm_epsilon": 1e-5, "attention.causal": False, "pooling_type": 2, "vocab_size": 250002,
        }),
}


# What some architectures ask for beside the rest, and none minds.
COMMON = {
    "logit_scale": 1.0, "residual_scale": 1.0, "embedding_scale": 1.0, "attention.scale": 0.1, "attention.clamp_kqv": 1.0,
    "attention.max_alibi_bias": 8.0, "use_parallel_residual": False, "rope.dimension_sections": [16, 24, 24, 0],
}
SHARED = {
    "expert_shared_count": 1, "expert_shared_feed_forward_length": 1024, "leading_dense_block_count": 1, "expert_gating_func": 2,
    "expert_weights_scale": 1.0, "interleave_moe_layer_step": 1,
}
DENSE = """
    arcee baichuan bitnet bloom chatglm codeshell cogvlm command-r deci ernie4_5 exaone exaone4 gemma gptneox granite hunyuan-dense
    hunyuan_vl internlm2 jais jais2 maincoder minicpm mistral3 mpt nanbeige nemotron olmo openelm orion paddleocr pangu-embedded phi2
    plamo qwen qwen2vl qwen3vl refact seed_oss starcoder talkie xverse
"""
MIXTURES = """
    arctic bailingmoe bailingmoe2 dbrx deepseek dots1 ernie4_5-moe glm4moe hunyuan-moe hy_v3 minimax-m2 olmoe phimoe qwen3vlmoe
"""
WINDOWED = "afmoe cohere2moe exaone-moe laguna mellum muse-glimmer plamo3 smallthinker"
EMBEDDERS = "eurobert gemma-embedding jina-bert-v3 modern-bert neo-bert nomic-bert nomic-bert-moe"
for names, more in (
    (DENSE, {}),
    (MIXTURES, {**experts(32, 4, 1024), **SHARED}),
    (WINDOWED, {**experts(32, 4, 1024), **SHARED, **window(1024)}),
    (EMBEDDERS, {**window(1024), "attention.causal": False, "pooling_type": 1, "tied": True}),
):
    # Some graphs know whole heads alone.
    heads = {name: 16 if name in ("dots1", "olmoe") else 4 for name in names.split()}
    MODELS |= {name: attention(name, 2048, 5504, 16, heads[name], 128, 100352, 8, **{**COMMON, **more}) for name in names.split()}


def metadata(architecture, fields):
    """Keys and values of a file; None stands for a key that is left out."""
    keys = {f"{architecture}.{key}": value for key, value in fields.items() if value is not None and key != "tied"}
    return {"general.architecture": architecture, "general.file_type": 7,
        **keys, "tokenizer.ggml.model": "none", "tokenizer.ggml.token_type_count": 1}


def make(judge, path, name):
    """Writes the file of a model with the tensors that llama.cpp insists on."""
    architecture, fields = MODELS[name]
    keys = metadata(architecture, fields)
    tensors = judge.tensors(keys)
    left_out = [*oracle.OPTIONAL, *([r"^output\.weight$"] if fields.get("tied") else [])]
    for pattern in left_out:
        fewer = {key: shape for key, shape in tensors.items() if not oracle.re.search(pattern, key)}
        if len(fewer) == len(tensors):
            continue
        oracle.write(path, keys, fewer)
        try:
            judge.memory(path, 256)
        except oracle.Refused:
            continue
        tensors = fewer
    oracle.write(path, keys, tensors)


def predicted(daemon, path, context, options, embeds=False):
    """Bytes of weights, cache and activations."""
    body = {
        "workload": {
            "model": {"path": str(path)}, "batch": options.get("slots", 1),
            **({"prompt_tokens": context} if embeds else {"context_tokens": context, "phase": "decode"}),
            "kv_format": {"f16": "fp16"}.get(options.get("type_k", "f16"), options.get("type_k")),
        },
        "engine": "llama.cpp", "hardware": "agx-orin-64gb", "hypothetical": True,
    }
    if "ubatch" in options:
        body["workload"]["chunk_tokens"] = options["ubatch"]
    status, answer = daemon.ask("POST", "/v1/predict", body)
    if status != 200:
        raise oracle.Refused(answer)
    memory = answer["memory_bytes"]
    return memory["weights"], memory["kv_cache"], memory["activations"]


def off(ours, theirs):
    return 0.0 if ours == theirs else math.inf if theirs == 0 else ours / theirs - 1


def main():
    binaries, *names = sys.argv[1:]
    judge = oracle.Oracle()
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        daemon = Daemon(pathlib.Path(binaries).resolve(), home)
        try:
            sys.exit(check(judge, daemon, home, names))
        finally:
            daemon.stop()


def check(judge, daemon, home, names):
    failed = cases = 0
    table = collections.defaultdict(list)
    for name in names or MODELS:
        path = home / f"{name}.gguf"
        try:
            make(judge, path, name)
        except oracle.Refused as error:
            print(f"{name}: llama.cpp: {error}")
            failed += 1
            continue
        for context, options in RUNS:
            said = f"{name} {context} {options or ''}"
            stored = options.get("type_k", "f16")
            if MODELS[name][1].get("attention.key_length", 0) % oracle.FORMATS[stored][1]:
                continue
            cases += 1
            slots = options.get("slots", 1)
            try:
                theirs = judge.memory(path, context * slots, **options)
                ours = predicted(daemon, path, context, options, kind(*MODELS[name]) == "embedders")
            except oracle.Refused as error:
                print(f"{said}: {error}")
                failed += 1
                continue
            ratios = [off(*both) for both in zip(ours, theirs)]
            total = off(sum(ours), sum(theirs))
            table[kind(*MODELS[name])].append((name, *ratios, total))
            bad = abs(ratios[0]) > MOST_CONTEXT or abs(ratios[1]) > MOST_CONTEXT or abs(total) > MOST_TOTAL
            failed += bad
            if bad or names or abs(ratios[2]) > 0.1:
                shown = " | ".join(f"{a / 2**20:.1f} {b / 2**20:.1f} ({ratio:+.1%})" for a, b, ratio in zip(ours, theirs, ratios))
                print(f"{'x' if bad else ' '} {said}: {shown} | total {total:+.1%}")
        path.unlink()
    print("| models | of them | runs | context | compute buffer | total |\n|---|---|---|---|---|---|")
    for of, runs in table.items():
        most = (f"{max(abs(run[at]) for run in runs) * 100:.1f} %" for at in (2, 3, 4))
        print(f"| {of} | {len({run[0] for run in runs})} | {len(runs)} |", " | ".join(most), "|")
    print(f"{cases - failed} of {cases} agree")
    return 1 if failed else 0


def kind(architecture, fields):
    """The row of the table that a model belongs to."""
    if fields.get("attention.causal") is False:
        return "embedders"
    if any(key in fields for key in ("ssm.inner_size", "shortconv.l_cache", "wkv.head_size", "kda.head_dim")):
        return "hybrid and recurrent"
    if "attention.kv_lora_rank" in fields:
        return "latent attention"
    if fields.get("attention.sliding_window") and architecture != "phi3" or architecture in ("gemma2", "llama4"):
        return "windows"
    return "mixtures of experts" if "expert_count" in fields else "dense"


if __name__ == "__main__":
    main()
