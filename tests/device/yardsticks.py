#!/usr/bin/env python3
"""What torch, and with it cuBLAS, reaches on the first GPU: a request a line on standard input, an answer a line.

{"bench": "copy", ...} -> {"seconds": best time of one run, "how": words} or {"error": words}. The first line says which
torch it is, or why there is none. Memory is given back after every answer, for the program that is compared.
"""

import json
import math
import sys

# The modules beside this one are not for torch to find.
sys.path.pop(0)
try:
    import torch
except ImportError as missing:
    print(json.dumps({"error": f"torch is not installed ({missing})"}), flush=True)
    sys.exit(0)

# What one timed entry takes at least, and all of them of a measurement at most.
ENTRY_S, BUDGET_S, MOST_RUNS = 1e-3, 0.15, 2048
# Times the second-level cache between two uses of the same matrix.
CACHES_APART = 4
# m, n, k of the products. Which is fastest depends on how tiles divide among SMs.
PRODUCTS = [(4096, 4096, 4096), (8192, 8192, 4096), (8192, 8192, 8192), (16384, 8192, 8192)]


def timed(work):
    """Seconds between events around work."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def repeated(entry, runs):
    """The best of as many entries as the budget allows, per run."""
    times = []
    while len(times) < 5 or (sum(times) < BUDGET_S and len(times) < 500):
        times.append(timed(entry))
    return min(times) / runs


def measured(run, copies=1):
    """Best seconds of run(i), i going through copies: launched from the stream, and replayed as a graph."""

    def all_of(runs):
        for i in range(runs):
            run(i % copies)

    for _ in range(3):
        all_of(copies)
    torch.cuda.synchronize()
    once = min(timed(lambda: all_of(copies)) for _ in range(3)) / copies
    runs = min(math.ceil(ENTRY_S / max(once, 1e-7) / copies) * copies, MOST_RUNS)
    best = {"from a stream": repeated(lambda: all_of(runs), runs)}
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            all_of(runs)
        graph.replay()
        torch.cuda.synchronize()
        best["as a graph"] = repeated(graph.replay, runs)
    except RuntimeError as error:
        # What cannot be captured is compared as it is launched.
        print(f"no graph: {error}", file=sys.stderr)
    how = min(best, key=best.get)
    return best[how], how, best


def copies_of(size):
    # Older versions do not tell; 64 MiB are more than any had then.
    apart = CACHES_APART * getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
    return int(apart // max(size, 1) + 2)


def copy(size):
    source, target = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    source.random_()
    seconds, how, _ = measured(lambda _: target.copy_(source))
    return {"seconds": seconds, "how": f"torch copy_ {how}"}


def total(size):
    values = torch.ones(size // 4, dtype=torch.float32, device="cuda")
    seconds, how, _ = measured(lambda _: torch.sum(values))
    return {"seconds": seconds, "how": f"torch.sum fp32 {how}"}


def operands(precision, m, n, k, whole):
    """A, transposed B and the product of a precision; small whole numbers or normally distributed ones."""

    def values(rows, dtype):
        if dtype == torch.int8:
            reach = 3 if whole else 128
            return torch.randint(-reach + 1, reach, (rows, k), dtype=dtype, device="cuda")
        plain = (
            torch.randint(-2, 3, (rows, k), device="cuda").half()
            if whole
            else torch.randn(rows, k, dtype=torch.float16, device="cuda")
        )
        return plain.to(dtype)

    dtype = {
        "fp32": torch.float32,
        "tf32": torch.float32,
        "fp16": torch.float16,
        "bf16": torch.bfloat16,
        "int8": torch.int8,
        "fp8": getattr(torch, "float8_e4m3fn", None),
    }[precision]
    if dtype is None:
        raise RuntimeError("this torch has no float8_e4m3fn")
    a, b = values(m, dtype), values(n, dtype)
    if precision == "int8":
        return [("torch._int_mm", lambda _: torch._int_mm(a, b.t()))]
    if precision == "fp8":
        one = torch.ones((), device="cuda")

        def scaled(fast):
            return lambda _: torch._scaled_mm(
                a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast
            )

        return [("torch._scaled_mm, fast sums", scaled(True)), ("torch._scaled_mm", scaled(False))]
    out = torch.empty(m, n, dtype=dtype, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    return [("torch.matmul", lambda _: torch.matmul(a, b.t(), out=out))]


def product(precision):
    """The highest rate of a precision over shapes and kinds of numbers."""
    best, reasons = None, []
    for m, n, k in PRODUCTS:
        # A GPU that takes so long for one is filled by it.
        if best and 2 * m * n * k / best["flops_per_s"] > 0.1:
            break
        if 12 * (m * k + n * k + m * n) > torch.cuda.mem_get_info()[0] // 2:
            continue
        for whole in (True, False):
            try:
                for name, run in operands(precision, m, n, k, whole):
                    seconds, how, _ = measured(run)
                    rate = 2 * m * n * k / seconds
                    numbers = "small whole numbers" if whole else "normal numbers"
                    if best is None or rate > best["flops_per_s"]:
                        best = {"flops_per_s": rate, "how": f"{name} {m}x{n}x{k} {how}, {numbers}"}
            except RuntimeError as error:
                reasons.append(str(error).splitlines()[0])
            torch.cuda.empty_cache()
    return best or {"error": f"torch has no product in {precision} here: {reasons[0] if reasons else 'no memory'}"}


def vector(n, k):
    """fp16 matrix times one vector, the matrices from memory."""
    copies = copies_of(2 * n * k)
    matrices = [torch.randn(n, k, dtype=torch.float16, device="cuda") for _ in range(copies)]
    x = torch.randn(k, dtype=torch.float16, device="cuda")
    row, out = x.reshape(1, k), torch.empty(n, dtype=torch.float16, device="cuda")
    ways = {
        "torch.mv": lambda i: torch.mv(matrices[i], x, out=out),
        "F.linear of one row": lambda i: torch.nn.functional.linear(row, matrices[i]),
    }
    found = {name: measured(run, copies)[:2] for name, run in ways.items()}
    name = min(found, key=lambda name: found[name][0])
    return {"seconds": found[name][0], "how": f"{name} {found[name][1]}, {copies} matrices in turn"}


def launch():
    """A kernel that does nothing, launched and as a node of a graph."""
    torch.cuda._sleep(0)
    _, _, ways = measured(lambda _: torch.cuda._sleep(0))
    return {"stream_s": ways["from a stream"], "graph_s": ways.get("as a graph"), "how": "torch.cuda._sleep(0)"}


BENCHES = {"copy": copy, "sum": total, "product": product, "vector": vector, "launch": launch}


def main():
    if not torch.cuda.is_available():
        print(json.dumps({"error": f"torch {torch.__version__} sees no GPU"}), flush=True)
        return
    torch.cuda.init()
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = BENCHES[request.pop("bench")](**request)
        except (RuntimeError, AttributeError, TypeError) as error:
            answer = {"error": (str(error) or type(error).__name__).splitlines()[0]}
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            # A context that is lost answers nothing any more; the caller starts another.
            print(json.dumps({"error": str(error).splitlines()[0]}), flush=True)
            sys.exit(1)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
