"""llama.cpp's own count of the memory that a GGUF file takes: what `llama-fit-params` does, through the library in xllamacpp.

Nothing is allocated and no weight is read (`no_alloc`), so a file needs its header and a length only: `write` leaves a hole where
the weights would be. Which tensors an architecture has, and their shapes, llama.cpp says itself.
"""

import ctypes
import importlib.util
import pathlib
import re
import struct

POINTER, INT, U32, I32, F32, BOOL = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_int32, ctypes.c_float, ctypes.c_bool
# Beyond the fields that are named: a later release may have more.
SPARE = [("spare", ctypes.c_byte * 256)]
F16_TYPE = 1
# Name: (number in the tensor table, elements of a block, bytes of a block).
FORMATS = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q8_0": (8, 32, 34), "bf16": (30, 1, 2)}
# Matrices that a quantiser touches.
QUANTISED = re.compile(
    r"(attn_(q|k|v|qkv|output|gate|q_a|q_b|kv_b|kv_a_mqa|k_b|v_b)|ffn_(gate|up|down)(_exps|_shexp)?|ssm_(in|out|ba)|output"
    r"|token_embd|per_layer_token_embd|shortconv\.(in|out)_proj)\.weight$"
)
# Tensors that a file may lack.
OPTIONAL = (r"\.bias$", r"\.(scale|input_scale)$", r"rope_(freqs|factors_long|factors_short)\.weight$")


class ModelParams(ctypes.Structure):
    _fields_ = [
        ("devices", POINTER), ("overrides", POINTER), ("n_gpu_layers", I32), ("split_mode", INT), ("load_mode", INT),
        ("lazy_mode", INT), ("main_gpu", I32), ("tensor_split", POINTER), ("progress", POINTER), ("progress_data", POINTER),
        ("kv_overrides", POINTER), ("vocab_only", BOOL), ("check_tensors", BOOL), ("use_extra_bufts", BOOL), ("no_host", BOOL),
        ("no_alloc", BOOL), ("load_mtp", BOOL), *SPARE,
    ]


class ContextParams(ctypes.Structure):
    _fields_ = [
        *((name, U32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max", "per_seq")),
        *((name, I32) for name in ("n_threads", "n_threads_batch", "type", "rope", "pooling", "attention", "flash")),
        *((name, F32) for name in ("base", "scale", "ext", "attn", "fast", "slow")), ("orig", U32), ("defrag", F32),
        ("eval", POINTER), ("eval_data", POINTER), ("type_k", INT), ("type_v", INT), ("abort", POINTER), ("abort_data", POINTER),
        ("cache", POINTER), *((name, BOOL) for name in ("embeddings", "offload_kqv", "no_perf")),
        *((name, BOOL) for name in ("op_offload", "swa_full", "kv_unified")),
        ("samplers", POINTER), ("n_samplers", ctypes.c_size_t), ("other", POINTER), *SPARE,
    ]


class Breakdown(ctypes.Structure):
    """std::map<buffer type, {model, context, compute}> of libstdc++: its header, then the root of the tree."""

    _fields_ = [
        ("compare", POINTER), ("colour", POINTER), ("root", POINTER), ("first", POINTER), ("last", POINTER),
        ("count", ctypes.c_size_t),
    ]


class Node(ctypes.Structure):
    _fields_ = [
        ("colour", POINTER), ("parent", POINTER), ("left", POINTER), ("right", POINTER), ("key", POINTER),
        ("model", ctypes.c_size_t), ("context", ctypes.c_size_t), ("compute", ctypes.c_size_t),
    ]


class Tensor(ctypes.Structure):
    """The beginning of a ggml_tensor."""

    _fields_ = [("type", INT), ("buffer", POINTER), ("ne", ctypes.c_int64 * 4)]


class Entry(ctypes.Structure):
    """std::pair<std::string, ggml_tensor *>, with the string of wheels that older systems can load: a pointer to its characters."""

    _fields_ = [("text", ctypes.c_char_p), ("tensor", ctypes.POINTER(Tensor))]


class Refused(Exception):
    """llama.cpp does not take the file, and says why."""


SET_TENSOR = ctypes.CFUNCTYPE(None, POINTER, POINTER)
LOG = ctypes.CFUNCTYPE(None, INT, ctypes.c_char_p, POINTER)


class Oracle:
    def __init__(self):
        (folder,) = importlib.util.find_spec("xllamacpp").submodule_search_locations
        (library,) = pathlib.Path(folder).glob("*.so")
        self.lib = lib = ctypes.CDLL(str(library))
        lib.llama_model_default_params.restype = ModelParams
        lib.llama_context_default_params.restype = ContextParams
        for name in ("gguf_init_empty", "llama_model_load_from_file", "llama_model_init_from_user", "llama_init_from_model"):
            getattr(lib, name).restype = POINTER
        lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, ModelParams]
        lib.llama_model_init_from_user.argtypes = [POINTER, SET_TENSOR, POINTER, ModelParams]
        lib.llama_init_from_model.argtypes = [POINTER, ContextParams]
        lib.ggml_nbytes.argtypes, lib.ggml_nbytes.restype = [POINTER], ctypes.c_size_t
        for name in ("llama_free", "llama_model_free", "gguf_free"):
            getattr(lib, name).argtypes = [POINTER]
        self.breakdown = lib["_Z26llama_get_memory_breakdownPK13llama_context"]
        self.breakdown.argtypes = [ctypes.POINTER(Breakdown), POINTER]
        self.tensor_map = lib["_Z29llama_internal_get_tensor_mapPK11llama_model"]
        self.tensor_map.argtypes, self.tensor_map.restype = [POINTER], ctypes.POINTER(POINTER * 2)
        self.said = []
        self.log = LOG(lambda level, text, _: self.said.append(text.decode(errors="replace")))
        lib.llama_log_set(self.log, None)
        lib.llama_backend_init()
        self.context_defaults()

    def model_params(self):
        params = self.lib.llama_model_default_params()
        if not (params.n_gpu_layers == -1 and params.use_extra_bufts and not params.no_alloc):
            raise RuntimeError("llama_model_params has another layout in this release of xllamacpp")
        params.n_gpu_layers, params.no_alloc, params.use_extra_bufts, params.load_mode = 0, True, False, 0
        return params

    def context_defaults(self):
        params = self.lib.llama_context_default_params()
        flags = (params.offload_kqv, params.swa_full, params.kv_unified)
        if (params.n_ubatch, params.type_k, *flags) != (512, F16_TYPE, True, True, False):
            raise RuntimeError("llama_context_params has another layout in this release of xllamacpp")
        return params

    def failure(self):
        return "".join(self.said[-4:]).strip() or "no reason"

    def tensors(self, metadata):
        """Name and dimensions of the tensors that llama.cpp asks a file with these metadata for."""
        lib, keep = self.lib, []
        header = POINTER(lib.gguf_init_empty())
        for key, value in metadata.items():
            name = key.encode()
            if isinstance(value, bool):
                lib.gguf_set_val_bool(header, name, value)
            elif isinstance(value, int):
                lib.gguf_set_val_u32(header, name, U32(value))
            elif isinstance(value, float):
                lib.gguf_set_val_f32(header, name, F32(value))
            elif isinstance(value, str):
                lib.gguf_set_val_str(header, name, value.encode())
            else:
                kind, array = (BOOL, 7) if isinstance(value[0], bool) else (U32, 4)
                keep.append((kind * len(value))(*value))
                lib.gguf_set_arr_data(header, name, array, keep[-1], ctypes.c_size_t(len(value)))
        self.said.clear()
        model = lib.llama_model_init_from_user(header, SET_TENSOR(lambda *_: None), None, self.model_params())
        lib.gguf_free(header)
        if not model:
            raise Refused(self.failure())
        found = {}
        for entry in self.entries(model):
            dimensions = list(entry.tensor.contents.ne)
            while len(dimensions) > 1 and dimensions[-1] == 1:
                dimensions.pop()
            found[entry.text.decode()] = dimensions
        # Either of the two forms will do, and both are asked for.
        found = {name: shape for name, shape in found.items() if "attn_qkv" not in name or name.replace("qkv", "q") not in found}
        lib.llama_model_free(model)
        return found

    def entries(self, model):
        begin, end = self.tensor_map(model).contents
        return [Entry.from_address(at) for at in range(begin, end, ctypes.sizeof(Entry))]

    def repeated(self, model):
        """Bytes of tensors that are loaded twice: a table that serves as the head, too. A mapped file has them once."""
        places = {ctypes.addressof(entry.tensor.contents): entry.text for entry in self.entries(model)}
        return sum(self.lib.ggml_nbytes(at) for at in places) - sum(
            self.lib.ggml_nbytes(at) for at in {name: at for at, name in places.items()}.values())

    def memory(self, path, context, slots=1, ubatch=512, batch=2048, type_k="f16", type_v=None, unified=False, flash=-1):
        """Bytes of model, context and compute, as `llama-fit-params -fitp on` prints them."""
        self.said.clear()
        model = self.lib.llama_model_load_from_file(str(path).encode(), self.model_params())
        if not model:
            raise Refused(self.failure())
        params = self.context_defaults()
        params.n_ctx, params.n_seq_max, params.n_ubatch, params.n_batch = context, slots, ubatch, batch
        params.type_k, params.type_v = FORMATS[type_k][0], FORMATS[type_v or type_k][0]
        params.kv_unified, params.swa_full, params.flash = unified, False, flash
        made = self.lib.llama_init_from_model(model, params)
        if not made:
            said = self.failure()
            self.lib.llama_model_free(model)
            raise Refused(said)
        found = Breakdown()
        self.breakdown(ctypes.byref(found), made)
        sums, waiting = [0, 0, 0], [found.root]
        while waiting:
            at = waiting.pop()
            if at:
                node = Node.from_address(at)
                sums = [sum_ + part for sum_, part in zip(sums, (node.model, node.context, node.compute))]
                waiting += [node.left, node.right]
        sums[0] -= self.repeated(model)
        self.lib.llama_free(made)
        self.lib.llama_model_free(model)
        return sums


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, value):
    """A key with its type and value."""
    if isinstance(value, (bool, int, float, str)):
        kind, data = (
            (7, struct.pack("<?", value)) if isinstance(value, bool)
            else (4, struct.pack("<I", value)) if isinstance(value, int)
            else (6, struct.pack("<f", value)) if isinstance(value, float)
            else (8, text(value))
        )
        return text(key) + struct.pack("<I", kind) + data
    kind, form = (7, "?") if isinstance(value[0], bool) else (4, "I")
    return text(key) + struct.pack("<IIQ", 9, kind, len(value)) + struct.pack(f"<{len(value)}{form}", *value)


def write(path, metadata, tensors, stored="q8_0"):
    """A file of the header alone, as long as one with weights; matrices are `stored`, everything else in 32 bits."""
    table, offset = [], 0
    for name, dimensions in tensors.items():
        is_quantised = QUANTISED.search(name) and dimensions[0] % 32 == 0 and len(dimensions) > 1
        number, elements, size = FORMATS[stored if is_quantised else "f32"]
        count = 1
        for dimension in dimensions:
            count *= dimension
        table.append(text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, number, offset))
        offset += -(-count // elements * size // 32) * 32
    pairs = [pair(*one) for one in metadata.items()]
    header = b"".join([struct.pack("<4sIQQ", b"GGUF", 3, len(table), len(pairs)), *pairs, *table])
    header += bytes(-len(header) % 32)
    with open(path, "wb") as file:
        file.write(header)
        file.truncate(len(header) + offset)
