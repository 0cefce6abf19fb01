"""Lists the names that engines take, read from their packages without importing them: names.txt beside this file.

    pip download --no-deps torchao vllm vllm-gguf-plugin tensorrt-edgellm compressed-tensors
    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python
    python3 tests/laws/settings/names.py *.whl *.tar.gz > tests/laws/settings/names.txt

A row is `PACKAGE KIND NAME [VALUE...]`: `config` rows are torchao's classes, where they are imported from and the
arguments that their constructors take (a class without @dataclass takes none, whatever attributes it has); `value` rows
are what an option or an enumeration takes, `block` rows elements of a block, `variable` rows variables of the
environment. An `option` row has the type that the engine's parser reads the option as: `switch` (nothing follows), `int`,
`float`, `text`, or `choice` and the words that it takes. It stops where an option that rooflined uses is gone.
"""

import ast
import datetime
import re
import sys
import tarfile
import zipfile


CONFIGS = ("torchao.quantization", "torchao.prototype._nf4", "torchao.prototype.awq", "torchao.prototype.gptq",
           "torchao.prototype.mx_formats", "torchao.prototype.quantization.int4")
# What rooflined prints.
USED = {
    "vllm": ["--dtype", "--enable-prefix-caching", "--gpu-memory-utilization", "--kv-cache-dtype", "--max-model-len",
             "--max-num-batched-tokens", "--max-num-seqs", "--quantization", "--speculative-config"],
    "tensorrt_edgellm": ["--engine-dir", "--kv_cache_quantization", "--lm_head_quantization", "--max-batch-size",
                         "--max-input-len", "--max-kv-cache-capacity", "--model-dir", "--model_dir", "--output_dir",
                         "--quantization"],
    "llama_cpp_python": ["--cache-prompt", "--cache-ram", "--ctx-checkpoints", "--fit", "--imatrix", "--n-cpu-moe", "--outfile",
                         "--outtype", "--spec-draft-n-max", "--spec-draft-ngl", "--spec-ngram-simple-size-m", "--spec-type", "-b",
                         "-c", "-ctk", "-ctkd", "-ctv", "-ctvd", "-fa", "-m", "-md", "-ngl", "-np", "-t", "-ub"],
}


def rows_of_options(engine, found):
    """Rows of the options that rooflined uses; `found` has the type of every option of the engine."""
    if missing := [flag for flag in USED[engine] if flag not in found]:
        raise SystemExit(f"{engine} has no {missing} any more")
    for flag in USED[engine]:
        yield f"option {flag} {found[flag]}"


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


def arguments(text):
    """Names and keywords of every add_argument."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            names = [name for argument in node.args for name in strings(argument) if name.startswith("-")]
            if names:
                yield names, {keyword.arg: keyword.value for keyword in node.keywords}


def argparse_options(text):
    """The type of every option of argparse."""
    found = {}
    for names, keywords in arguments(text):
        action = strings(keywords["action"]) if "action" in keywords else []
        if any(word.startswith("store_") for word in action):
            kind = "switch"
        elif choices := strings(keywords["choices"]) if "choices" in keywords else []:
            kind = " ".join(["choice", *choices])
        else:
            kind = {"int": "int", "float": "float"}.get(ast.unparse(keywords["type"]) if "type" in keywords else "", "text")
        found.update(dict.fromkeys(names, kind))
    return found


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


def annotations(files, classes):
    """The annotation of every field of vLLM's configuration, by its class and name."""
    found = {}
    for name, text in files.items():
        if name.startswith("vllm/config/"):
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef) and node.name in classes:
                    fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
                    found.update({(node.name, n.target.id): ast.unparse(n.annotation) for n in fields})
    return found


def vllm(files):
    words = {
        "QuantizationMethods": assigned(files["vllm/model_executor/layers/quantization/__init__.py"], "QuantizationMethods"),
        "CacheDType": assigned(files["vllm/config/cache.py"], "CacheDType"),
        "ModelDType": assigned(files["vllm/config/model.py"], "ModelDType"),
    }
    kinds = {name: " ".join(["choice", *choices]) for name, choices in words.items()}
    kinds |= {"bool": "switch", "int": "int", "float": "float"}
    text = files["vllm/engine/arg_utils.py"]
    # `cache_kwargs = get_kwargs(CacheConfig)`, of which an option takes `**cache_kwargs["field"]`.
    kwargs = dict(re.findall(r"^\s*(\w+_kwargs) = get_kwargs\((\w+)\)", text, re.M))
    fields = annotations(files, kwargs.values())
    found = {}
    for names, keywords in arguments(text):
        spread = re.search(r"(\w+_kwargs)\['(\w+)'\]", ast.unparse(keywords[None])) if None in keywords else None
        annotation = fields.get((kwargs.get(spread[1]), spread[2]), "") if spread else ""
        kind = next((kind for word, kind in kinds.items() if re.search(rf"\b{word}\b", annotation)), "text")
        found.update(dict.fromkeys(names, kind))
    yield from rows_of_options("vllm", found)
    for variable in re.findall(r'^    "(VLLM_FLOAT32\w*)":', files["vllm/envs.py"], re.M):
        yield f"variable {variable}"


def vllm_gguf_plugin(files):
    text = files["vllm_gguf_plugin/quantization/utils.py"]
    types = re.findall(r"WeightType\.(\w+)", text.split("STANDARD_QUANT_TYPES", 1)[1])
    yield " ".join(["value", "block-type"] + sorted(set(types)))


def tensorrt_edgellm(files):
    found = argparse_options(files["experimental/builder/cli.py"]) | argparse_options(files["tensorrt_edgellm/scripts/quantize.py"])
    yield from rows_of_options("tensorrt_edgellm", found)


def compressed_tensors(files):
    schemes = files["compressed_tensors/quantization/quant_scheme.py"].split("\nPRESET_SCHEMES", 1)[1]
    yield " ".join(["value", "scheme"] + re.findall(r'^    "(\w+)":', schemes.split("\n}", 1)[0], re.M))


def llama_options(text):
    """The type of every option of llama.cpp's programs: that of the handler, `(common_params & params, int value)`."""
    cache = text.split("kv_cache_types = {", 1)[1].split("};", 1)[0]
    types = [name.lower() for name in re.findall(r"GGML_TYPE_(\w+)", cache)]
    found = {}
    for call in re.split(r"\badd_opt\(common_arg\(", text)[1:]:
        names = re.match(r"\s*\{([^}]*)\}\s*,\s*(?:\{([^}]*)\}\s*,\s*)?(\"[^\"]*\")?", call)
        handler = re.search(r"\]\(common_params & ?\w*(?:, ([\w:& ]+?) ?&? ?\w*)?\)", call)
        if not (names and handler):
            continue
        read = handler[1] or ""
        hint = (names[3] or "").strip('"')
        if read in ("", "bool"):
            kind = "switch"
        elif read == "int":
            kind = "int"
        elif "kv_cache_type_from_str" in call:
            kind = " ".join(["choice", *types])
        elif re.fullmatch(r"\[?\w+(\|\w+)+\]?", hint):
            kind = " ".join(["choice", *hint.strip("[]").split("|")])
        else:
            kind = "text"
        for name in re.findall(r'"(-[\w-]+)"', names[1] + (names[2] or "")):
            # Programs that read one option in their own ways have it twice; the server's comes first.
            found.setdefault(name, kind)
    return found


def llama_cpp_python(files):
    files = {name.removeprefix("vendor/llama.cpp/"): text for name, text in files.items()}
    text = files["tools/quantize/quantize.cpp"]
    table = text.split("QUANT_OPTIONS = {", 1)[1].split("};", 1)[0]
    yield " ".join(["value", "llama-quantize"] + re.findall(r'\{ "(\w+)",', table))
    convert = argparse_options(files["convert_hf_to_gguf.py"])
    # llama-quantize compares its options with strcmp, and what follows is a path or a name.
    quantize = dict.fromkeys(re.findall(r'strcmp\([^"]*"(--[\w-]+)"', text), "text")
    yield from rows_of_options("llama_cpp_python", quantize | convert | llama_options(files["common/arg.cpp"]))
    for name, size in re.findall(r"#define QK(\d_\d) (\d+)", files["ggml/src/ggml-common.h"]):
        yield f"block Q{name} {size}"


def rows(path):
    """The package of an archive, its version, and its rows."""
    package = re.match(r"[a-z_]+[a-z]", path.split("/")[-1].replace("-", "_"))[0]
    contents = read(path)
    return package, version(contents), [f"{package} {row}" for row in READERS[package](contents)]


READERS = {f.__name__: f for f in
           (torchao, vllm, vllm_gguf_plugin, tensorrt_edgellm, compressed_tensors, llama_cpp_python)}

if __name__ == "__main__":
    for archive in sorted(sys.argv[1:]):
        package, release, found = rows(archive)
        print(f"# {package} {release}, read {datetime.date.today()}")
        for row in found:
            print(row)
