#!/usr/bin/env python3
"""Rates of PyTorch and ONNX Runtime on this CPU: stacks of transformer layers, each run between two probes of the machine.

    python3 benches/cpu_layers.py ENGINE PROBE OUT.csv [--models a,b] [--formats fp32,bf16,int8,int4_g32] [--threads 1,2]

ENGINE is torch, onnxruntime or numpy. PROBE is a program that prints {"forkjoin_ns", "read1_gbs", "readN_gbs", "clock_ghz"}: a fork
and join of all cores, reads of 256 MiB by one and by all, and the clock. The weights are random; the shapes are the models' own, of
the first N layers where a name ends in -cutN. A run is a decode of N_GEN tokens after DEPTH, by BATCH sequences, or one pass over
N_PROMPT tokens; the rate is the median of its steps. Lines are appended; those that OUT has already are not measured again.

PyTorch: eager, nn.Linear, scaled_dot_product_attention over a preallocated cache; int8 is torch.ao.quantization.quantize_dynamic.
ONNX Runtime: the graph that its model builder writes (SimplifiedLayerNormalization, GroupQueryAttention over one buffer of past and
present); int8 is DynamicQuantizeMatMul, int4_g32 MatMulNBits with blocks of 32 and accuracy level 4. numpy: one product a line, fp32,
N_GEN 0, N_PROMPT columns, the model gemm-NxK; weights are rotated through copies, so that they come from main memory.
Where the kernel refuses AMX tiles or they fault, set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 for PyTorch.
"""
import argparse
import csv
import datetime
import gc
import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np

MODELS = {  # width, inner, layers, query heads, cached heads, head width, vocabulary
    "tinyllama-1.1b": (2048, 5632, 22, 32, 4, 64, 32000),
    "smollm2-360m": (960, 2560, 32, 15, 5, 64, 49152),
    "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, 128, 151936),
}
COLUMNS = ("date,machine,engine,version,processor,cores,model,format,tool,n_prompt,n_gen,depth,batch,threads,tokens_per_s,"
           "sd_tokens_per_s,clock_ghz,forkjoin_ns,read1_gbs_0,read_all_gbs_0,read1_gbs_1,read_all_gbs_1,other_cpu,steal").split(",")
# prompt tokens, new tokens, tokens before, sequences
TESTS = [(0, 12, 32, 1), (0, 12, 768, 1), (0, 12, 32, 4), (0, 8, 32, 16), (32, 0, 0, 1), (256, 0, 0, 1), (1024, 0, 0, 1)]
PRODUCTS = [(n, m) for n in (1024, 2048, 3072, 4096) for m in (1, 8, 64, 512)]


def shape(name):
    known, _, layers = name.partition("-cut")
    width, inner, of, heads, kv, head, vocab = MODELS[known]
    return width, inner, int(layers or of), heads, kv, head, vocab


class Torch:
    def __init__(self, name, fmt, threads, depth):
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        self.torch = torch
        width, inner, layers, heads, kv, head, vocab = shape(name)
        dtype = torch.bfloat16 if fmt == "bf16" else torch.float32

        def linear(inputs, outputs):
            made = nn.Linear(inputs, outputs, bias=False, dtype=dtype)
            made.weight.requires_grad_(False)
            return made

        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v = linear(width, heads * head), linear(width, kv * head), linear(width, kv * head)
                self.o = linear(heads * head, width)
                self.gate, self.up, self.down = linear(width, inner), linear(width, inner), linear(inner, width)
                self.norms = [torch.ones(width, dtype=dtype) for _ in range(2)]

            def forward(self, x, cos, sin, cache, at):
                batch, new, _ = x.shape
                y = F.rms_norm(x, (width,), self.norms[0], 1e-5)
                q = self.q(y).view(batch, new, heads, head).transpose(1, 2)
                k = self.k(y).view(batch, new, kv, head).transpose(1, 2)
                v = self.v(y).view(batch, new, kv, head).transpose(1, 2)

                def turn(t):
                    a, b = t.chunk(2, -1)
                    return t * cos + torch.cat((-b, a), -1) * sin
                q, k = turn(q), turn(k)
                cache[0][:batch, :, at:at + new], cache[1][:batch, :, at:at + new] = k, v
                k, v = cache[0][:batch, :, :at + new], cache[1][:batch, :, :at + new]
                y = F.scaled_dot_product_attention(q, k, v, is_causal=new > 1, enable_gqa=heads != kv)
                x = x + self.o(y.transpose(1, 2).reshape(batch, new, heads * head))
                y = F.rms_norm(x, (width,), self.norms[1], 1e-5)
                return x + self.down(F.silu(self.gate(y)) * self.up(y))

        class Stack(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(Layer() for _ in range(layers))
                self.head = linear(width, vocab)

        self.model = Stack().eval()
        self.embed = torch.randn(vocab, width, dtype=dtype)
        if fmt == "int8":
            self.model = torch.ao.quantization.quantize_dynamic(self.model, {nn.Linear}, dtype=torch.qint8)
        self.caches = [[torch.randn(16, kv, depth, head, dtype=dtype) for _ in range(2)] for _ in range(layers)]
        angle = torch.arange(depth)[:, None] / 1e4 ** (torch.arange(head) % (head // 2) / (head // 2))
        self.cos, self.sin = angle.cos().to(dtype), angle.sin().to(dtype)
        self.threads(threads)

    def threads(self, count):
        self.torch.set_num_threads(count)

    def step(self, batch, new, at):
        with self.torch.inference_mode():
            x = self.embed[self.torch.randint(0, 1000, (batch, new))]
            cos, sin = self.cos[at:at + new], self.sin[at:at + new]
            for layer, cache in zip(self.model.layers, self.caches):
                x = layer(x, cos, sin, cache, at)
            return self.model.head(x[:, -1:]).argmax(-1)

    @staticmethod
    def version():
        import torch
        return torch.__version__


class Onnx:
    LONGEST = 1056

    def __init__(self, name, fmt, threads, depth):
        import onnxruntime as ort
        self.ort, self.shape, self.fmt = ort, shape(name), fmt
        self.file = os.path.join(tempfile.mkdtemp(prefix="layers"), "model.onnx")
        self.build()
        self.threads(threads)

    def build(self):
        import onnx
        from onnx import TensorProto as T, helper as h, numpy_helper
        width, inner, layers, heads, kv, head, vocab = self.shape
        rng = np.random.default_rng(1)
        nodes, weights = [], []

        def keep(name, array):
            weights.append(numpy_helper.from_array(array, name))
            return name

        def product(name, x, inputs, outputs):
            if self.fmt == "fp32":
                w = keep(name, rng.standard_normal((inputs, outputs), dtype=np.float32) * np.float32(0.02))
                nodes.append(h.make_node("MatMul", [x, w], [name + "_y"]))
            elif self.fmt == "int8":
                w = keep(name, rng.integers(-127, 127, (inputs, outputs), dtype=np.int8))
                s, z = keep(name + "_s", np.float32(2e-4)), keep(name + "_z", np.int8(0))
                nodes.append(h.make_node("DynamicQuantizeMatMul", [x, w, s, z], [name + "_y"], domain="com.microsoft"))
            else:
                blocks = inputs // 32
                w = keep(name, rng.integers(0, 255, (outputs, blocks, 16), dtype=np.uint8))
                s = keep(name + "_s", np.full(outputs * blocks, 2e-3, np.float32))
                nodes.append(h.make_node("MatMulNBits", [x, w, s], [name + "_y"], domain="com.microsoft", K=inputs, N=outputs,
                                         bits=4, block_size=32, accuracy_level=4))
            return name + "_y"

        def norm(name, x):
            w = keep(name, np.ones(width, np.float32))
            nodes.append(h.make_node("SimplifiedLayerNormalization", [x, w], [name + "_y"], axis=-1, epsilon=1e-5))
            return name + "_y"

        angle = np.arange(self.LONGEST)[:, None] / 1e4 ** (np.arange(head // 2) / (head // 2))
        keep("cos", np.cos(angle).astype(np.float32)), keep("sin", np.sin(angle).astype(np.float32))
        inputs = [h.make_tensor_value_info("x", T.FLOAT, ["b", "s", width]), h.make_tensor_value_info("lens", T.INT32, ["b"]),
                  h.make_tensor_value_info("total", T.INT32, [1])]
        outputs, x = [], "x"
        for i in range(layers):
            y = norm(f"n{i}", x)
            q, k, v = (product(f"{n}{i}", y, width, c * head) for n, c in (("q", heads), ("k", kv), ("v", kv)))
            past, present = [f"pk{i}", f"pv{i}"], [f"ok{i}", f"ov{i}"]
            nodes.append(h.make_node("GroupQueryAttention", [q, k, v, *past, "lens", "total", "cos", "sin"], [f"a{i}", *present],
                                     domain="com.microsoft", num_heads=heads, kv_num_heads=kv, do_rotary=1))
            inputs += [h.make_tensor_value_info(n, T.FLOAT, ["b", kv, "m", head]) for n in past]
            outputs += [h.make_tensor_value_info(n, T.FLOAT, ["b", kv, "m", head]) for n in present]
            nodes.append(h.make_node("Add", [x, product(f"o{i}", f"a{i}", heads * head, width)], [f"x{i}"]))
            y = norm(f"m{i}", f"x{i}")
            gate, up = product(f"g{i}", y, width, inner), product(f"u{i}", y, width, inner)
            nodes.append(h.make_node("Sigmoid", [gate], [f"s{i}"]))
            nodes.append(h.make_node("Mul", [gate, f"s{i}"], [f"t{i}"]))
            nodes.append(h.make_node("Mul", [f"t{i}", up], [f"w{i}"]))
            nodes.append(h.make_node("Add", [f"x{i}", product(f"d{i}", f"w{i}", inner, width)], [f"z{i}"]))
            x = f"z{i}"
        last = keep("last", np.array([-1], np.int64))
        end, axis = keep("end", np.array([2 ** 31], np.int64)), keep("axis", np.array([1], np.int64))
        nodes.append(h.make_node("Slice", [x, last, end, axis], ["tail"]))
        logits = product("head", "tail", width, vocab)
        outputs.append(h.make_tensor_value_info(logits, T.FLOAT, ["b", "s1", vocab]))
        graph = h.make_graph(nodes, "layers", inputs, outputs, weights)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)], ir_version=9)
        onnx.save_model(model, self.file, save_as_external_data=True, location="weights.bin", size_threshold=1024)

    def threads(self, count):
        self.session = None
        options = self.ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = count, 1
        self.session = self.ort.InferenceSession(self.file, options, providers=["CPUExecutionProvider"])
        self.past = {}

    def step(self, batch, new, at):
        width, _, layers, _, kv, head, _ = self.shape
        if self.past.get("batch") != batch:
            zero = [np.zeros((batch, kv, self.LONGEST, head), np.float32) for _ in range(2 * layers)]
            self.past = {"batch": batch, "of": [self.ort.OrtValue.ortvalue_from_numpy(z) for z in zero]}
        bind = self.session.io_binding()
        x = np.random.default_rng(at).standard_normal((batch, new, width), dtype=np.float32)
        bind.bind_cpu_input("x", x)
        bind.bind_cpu_input("lens", np.full(batch, at + new - 1, np.int32))
        bind.bind_cpu_input("total", np.array([at + new], np.int32))
        for i in range(layers):
            for j, name in enumerate("kv"):
                bind.bind_ortvalue_input(f"p{name}{i}", self.past["of"][2 * i + j])
                bind.bind_ortvalue_output(f"o{name}{i}", self.past["of"][2 * i + j])
        bind.bind_output("head_y", "cpu")
        self.session.run_with_iobinding(bind)

    def close(self):
        self.session = None
        for name in os.listdir(os.path.dirname(self.file)):
            os.remove(os.path.join(os.path.dirname(self.file), name))
        os.rmdir(os.path.dirname(self.file))

    @staticmethod
    def version():
        import onnxruntime
        return onnxruntime.__version__


def processor():
    """The key of config/engines/cpu, without AMX tiles."""
    text = open("/proc/cpuinfo").read()
    if "AuthenticAMD" in text and "avx512_vnni" in text:
        return "zen5" if "cpu family\t: 26" in text else "zen4"
    pairs = [("avx512_vnni", "avx512_vnni"), ("avx_vnni", "avx_vnni"), ("avx2", "avx2"), ("i8mm", "neon_i8mm"), ("asimddp", "neon_dotprod")]
    return next((key for flag, key in pairs if flag in text), "other")


def cpu():
    values = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    own = os.times()
    return time.time(), (sum(values[:3]) + values[5] + values[6]) / 100, values[7] / 100, own.user + own.system


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["torch", "onnxruntime", "numpy"])
    parser.add_argument("probe")
    parser.add_argument("out")
    parser.add_argument("--models", default="tinyllama-1.1b-cut6,smollm2-360m-cut16,qwen2.5-1.5b-cut4")
    parser.add_argument("--formats", default="")
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}")
    parser.add_argument("--seconds", type=float, default=1.5)
    asked = parser.parse_args()
    cores = os.cpu_count()
    version = {"torch": Torch, "onnxruntime": Onnx}[asked.engine].version() if asked.engine != "numpy" else np.__version__
    new = not os.path.exists(asked.out)
    key = ("engine", "model", "format", "n_prompt", "n_gen", "depth", "batch", "threads")
    done = set() if new else {tuple(row[k] for k in key) for row in csv.DictReader(open(asked.out))}
    handle = open(asked.out, "a", newline="")
    out = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
    if new:
        out.writeheader()

    def probe():
        return json.loads(subprocess.run([asked.probe], capture_output=True, text=True, check=True).stdout)

    def measure(row, tokens, run):
        if tuple(str(row.get(k, asked.engine)) for k in key) in done:
            return
        os.sched_setaffinity(0, range(cores))
        before = probe()
        run()
        times, start, load = [], time.perf_counter(), cpu()
        while len(times) < 3 or time.perf_counter() - start < asked.seconds and len(times) < 400:
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        end, after = cpu(), probe()
        wall = end[0] - load[0]
        rates = [tokens / t for t in times]
        row |= {
            "date": datetime.date.today(), "machine": f"{processor()}-{cores}", "engine": asked.engine, "version": version,
            "processor": processor(), "cores": cores, "tool": "cpu_layers.py",
            "tokens_per_s": f"{statistics.median(rates):.4f}", "sd_tokens_per_s": f"{statistics.stdev(rates):.4f}",
            "clock_ghz": f"{max(before['clock_ghz'], after['clock_ghz']):.3f}", "forkjoin_ns": min(before["forkjoin_ns"], after["forkjoin_ns"]),
            "read1_gbs_0": before["read1_gbs"], "read_all_gbs_0": before["readN_gbs"],
            "read1_gbs_1": after["read1_gbs"], "read_all_gbs_1": after["readN_gbs"],
            "other_cpu": f"{max(0, (end[1] - load[1] - end[3] + load[3]) / wall):.3f}", "steal": f"{(end[2] - load[2]) / wall:.3f}",
        }
        out.writerow(row)
        handle.flush()
        print(*(row[k] for k in ("model", "format", "n_prompt", "n_gen", "depth", "batch", "threads", "tokens_per_s",
                                 "sd_tokens_per_s", "read1_gbs_0", "other_cpu")), flush=True)

    threads = [int(t) for t in asked.threads.split(",")]
    if asked.engine == "numpy":
        # The BLAS takes its number of threads from the environment when it is loaded.
        assert len(threads) == 1 and os.environ.get("OPENBLAS_NUM_THREADS") == str(threads[0]), "set OPENBLAS_NUM_THREADS and one --threads"
        for n, m in PRODUCTS:
            copies = max(2, -(-400_000_000 // (4 * n * n)))
            weights = [np.random.default_rng(i).standard_normal((n, n), dtype=np.float32) for i in range(copies)]
            x = np.ones((n, m) if m > 1 else n, np.float32)
            turn = iter(range(10 ** 9))
            measure(dict(model=f"gemm-{n}x{n}", format="fp32", n_prompt=m, n_gen=0, depth=0, batch=1, threads=threads[0]), m,
                    lambda: weights[next(turn) % copies] @ x)
        return
    formats = (asked.formats or {"torch": "fp32,bf16,int8", "onnxruntime": "fp32,int8,int4_g32"}[asked.engine]).split(",")
    for name in asked.models.split(","):
        for fmt in formats:
            stack = None
            for count in threads:
                for n_prompt, n_gen, depth, batch in TESTS:
                    row = dict(model=name, format=fmt, n_prompt=n_prompt, n_gen=n_gen, depth=depth, batch=batch, threads=count)
                    if (asked.engine, *(str(row[k]) for k in key[1:])) in done:
                        continue
                    stack = stack or {"torch": Torch, "onnxruntime": Onnx}[asked.engine](name, fmt, count, 1056)
                    if getattr(stack, "now", None) != count:
                        stack.threads(count)
                        stack.now = count
                    place = iter(range(10 ** 9))
                    if n_prompt:
                        measure(row, n_prompt, lambda: stack.step(1, n_prompt, 0))
                    else:
                        measure(row, batch, lambda: stack.step(batch, 1, depth + next(place) % n_gen))
            if hasattr(stack, "close"):
                stack.close()
            del stack
            gc.collect()


if __name__ == "__main__":
    main()
