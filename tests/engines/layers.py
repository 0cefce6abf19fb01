#!/usr/bin/env python3
"""Decodes with a stack of transformer layers of random weights: layers.py ENGINE CONFIG FORMAT THREADS BATCH CONTEXT SECONDS

ENGINE is torch or onnxruntime, CONFIG the fields of a config.json (Llama's shape, as many heads of keys as of queries), FORMAT
fp32 or bf16. Every line on standard input is a turn of SECONDS, answered with one line of JSON: the time of a step in the
middle of all, of the fastest tenth and of the slowest, and the number of steps. A step is one token for each of BATCH sequences
with CONTEXT tokens in the cache: embedding, layers, head and the choice of the next token. Positions are not rotated, which
costs next to nothing.
"""

import json
import sys
import time

import numpy as np


def weights(config):
    """Names and shapes, rows by columns; norms are vectors."""
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    yield "embed", (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        for name in ("q", "k", "v", "o"):
            yield f"{name}{layer}", (hidden, hidden)
        yield f"gate{layer}", (inner, hidden)
        yield f"up{layer}", (inner, hidden)
        yield f"down{layer}", (hidden, inner)
    yield "head", (vocab, hidden)


def values(config):
    rng = np.random.default_rng(1)
    for name, shape in weights(config):
        yield name, rng.standard_normal(shape, dtype=np.float32) * np.float32(shape[1] ** -0.5)


def of_torch(config, format_name, threads, batch, context):
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[format_name]
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    width = hidden // heads
    weight = {name: torch.from_numpy(value).to(kind) for name, value in values(config)}
    norm = torch.ones(hidden, dtype=kind)
    cache = [torch.randn(2, batch, heads, context + 1, width).to(kind) for _ in range(config["num_hidden_layers"])]
    token = torch.zeros(batch, dtype=torch.long)

    def step():
        nonlocal token
        state = weight["embed"][token]
        for layer, (keys, values_) in enumerate(cache):
            normed = functional.rms_norm(state, (hidden,), norm, 1e-5)
            query = functional.linear(normed, weight[f"q{layer}"]).view(batch, heads, 1, width)
            keys[:, :, context] = functional.linear(normed, weight[f"k{layer}"]).view(batch, heads, width)
            values_[:, :, context] = functional.linear(normed, weight[f"v{layer}"]).view(batch, heads, width)
            mixed = functional.scaled_dot_product_attention(query, keys, values_).reshape(batch, hidden)
            state = state + functional.linear(mixed, weight[f"o{layer}"])
            normed = functional.rms_norm(state, (hidden,), norm, 1e-5)
            gated = functional.silu(functional.linear(normed, weight[f"gate{layer}"]))
            state = state + functional.linear(gated * functional.linear(normed, weight[f"up{layer}"]), weight[f"down{layer}"])
        token = functional.linear(functional.rms_norm(state, (hidden,), norm, 1e-5), weight["head"]).argmax(-1)

    def all_steps():
        with torch.inference_mode():
            step()

    return all_steps


def of_onnxruntime(config, format_name, threads, batch, context):
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    if format_name != "fp32":
        sys.exit(f"ONNX Runtime has no products in {format_name} on CPUs")
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    width = hidden // heads
    nodes, constants = [], [numpy_helper.from_array(np.ones(hidden, np.float32), "norm")]

    def node(kind, inputs, **attributes):
        name = f"t{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def shape(name, dimensions):
        constants.append(numpy_helper.from_array(np.array(dimensions, np.int64), name))

    shape("heads", [batch, heads, 1, width])
    shape("flat", [batch, hidden])
    constants.append(numpy_helper.from_array(np.float32(width**-0.5), "scale"))
    # Row times matrix: stored as the operator takes it.
    for name, value in values(config):
        constants.append(numpy_helper.from_array(value if name == "embed" else np.ascontiguousarray(value.T), name))

    def normed(state):
        # The contributed operator that exported models hold.
        name = f"t{len(nodes)}"
        nodes.append(helper.make_node("SimplifiedLayerNormalization", [state, "norm"], [name], axis=-1, epsilon=1e-5))
        return name

    state = node("Gather", ["embed", "token"])
    inputs = [helper.make_tensor_value_info("token", TensorProto.INT64, [batch])]
    feed = {}
    rng = np.random.default_rng(2)
    for layer in range(config["num_hidden_layers"]):
        for which in ("keys", "values"):
            name = f"{which}{layer}"
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, heads, context, width]))
            feed[name] = rng.standard_normal((batch, heads, context, width), dtype=np.float32)
        input_ = normed(state)
        query = node("Mul", [node("Reshape", [node("MatMul", [input_, f"q{layer}"]), "heads"]), "scale"])
        key = node("Reshape", [node("MatMul", [input_, f"k{layer}"]), "heads"])
        value = node("Reshape", [node("MatMul", [input_, f"v{layer}"]), "heads"])
        keys = node("Concat", [f"keys{layer}", key], axis=2)
        all_values = node("Concat", [f"values{layer}", value], axis=2)
        scores = node("Softmax", [node("MatMul", [query, node("Transpose", [keys], perm=[0, 1, 3, 2])])], axis=-1)
        mixed = node("Reshape", [node("MatMul", [scores, all_values]), "flat"])
        state = node("Add", [state, node("MatMul", [mixed, f"o{layer}"])])
        input_ = normed(state)
        gate = node("MatMul", [input_, f"gate{layer}"])
        gated = node("Mul", [node("Mul", [gate, node("Sigmoid", [gate])]), node("MatMul", [input_, f"up{layer}"])])
        state = node("Add", [state, node("MatMul", [gated, f"down{layer}"])])
    token = node("ArgMax", [node("MatMul", [normed(state), "head"])], axis=-1, keepdims=0)
    output = helper.make_tensor_value_info(token, TensorProto.INT64, [batch])
    graph = helper.make_graph(nodes, "layers", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed["token"] = np.zeros(batch, np.int64)

    def step():
        feed["token"] = session.run([token], feed)[0]

    return step


def main():
    engine, config, format_name = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    threads, batch, context = map(int, sys.argv[4:7])
    seconds = float(sys.argv[7])
    make = {"torch": of_torch, "onnxruntime": of_onnxruntime}[engine]
    step = make(config, format_name, threads, batch, context)
    for _ in range(5):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        times = []
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            step()
            times.append(time.monotonic() - began)
        times.sort()
        place = lambda share: times[int(share * (len(times) - 1))]
        print(json.dumps({"time_s": place(0.5), "low": place(0.1), "high": place(0.9), "steps": len(times)}), flush=True)


if __name__ == "__main__":
    main()
