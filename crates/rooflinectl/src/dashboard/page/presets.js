/**
 * Matrix products of real models: the weight of a linear layer is N × K, and M is the number of tokens that pass it at once, one for
 * each sequence in decode and the prompt's in prefill. Layers are given as `[name, N, K]`.
 */

const llama = ({ hidden, kv, inner, vocab, q = hidden }) => [
  ["q_proj", q, hidden], ["k_proj", kv, hidden], ["v_proj", kv, hidden], ["o_proj", hidden, q],
  ["gate_proj", inner, hidden], ["up_proj", inner, hidden], ["down_proj", hidden, inner], ["lm_head", vocab, hidden],
];

export const MODELS = [
  { key: "llama-3.1-8b", name: "Llama-3.1-8B", layers: llama({ hidden: 4096, kv: 1024, inner: 14336, vocab: 128256 }) },
  { key: "llama-3.2-1b", name: "Llama-3.2-1B", layers: llama({ hidden: 2048, kv: 512, inner: 8192, vocab: 128256 }) },
  { key: "llama-3.2-3b", name: "Llama-3.2-3B", layers: llama({ hidden: 3072, kv: 1024, inner: 8192, vocab: 128256 }) },
  { key: "qwen2.5-7b", name: "Qwen2.5-7B", layers: llama({ hidden: 3584, kv: 512, inner: 18944, vocab: 152064 }) },
  { key: "qwen3-4b", name: "Qwen3-4B", layers: llama({ hidden: 2560, kv: 1024, inner: 9728, vocab: 151936, q: 4096 }) },
  { key: "llama-3.1-70b", name: "Llama-3.1-70B", layers: llama({ hidden: 8192, kv: 1024, inner: 28672, vocab: 128256 }) },
];

/** How many tokens pass at once. */
export const PHASES = [
  { key: "decode", name: "decode, batch 1", m: 1 },
  { key: "decode8", name: "decode, batch 8", m: 8 },
  { key: "decode32", name: "decode, batch 32", m: 32 },
  { key: "prefill", name: "prefill, 512 tokens", m: 512 },
];

/** The operation of a product: with one token a matrix times a vector. */
export const operation = (m, n, k) => m === 1 ? { kind: "gemv", n, k } : { kind: "gemm", m, n, k };

/** Formats offered for a single kernel, with the name of what they stand for. */
export const KERNEL_FORMATS = ["fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8", "q8_0", "nvfp4", "mxfp4", "int4_g128", "q4_0", "q4_k_m"];

/** Engines with the formats that are considered by default, as `rooflinectl recommend` has them. */
export const ENGINES = {
  "llama.cpp": ["fp16", "q8_0", "q6_k", "q5_k_m", "q4_k_m"],
  vllm: ["fp16", "awq_int4", "fp8_e4m3", "nvfp4"],
  "tensorrt-llm": ["fp16", "awq_int4", "fp8_e4m3", "nvfp4"],
  "tensorrt-edge-llm": ["fp16", "awq_int4", "fp8_e4m3", "nvfp4"],
  mlc: ["fp16", "int4_g32"],
  torch: ["bf16", "int8", "int4_g128", "fp8_e4m3", "nvfp4"],
};
/** Formats that can be chosen beside them. */
export const OTHER_FORMATS = ["q4_0", "q2_k", "gptq_int4"];
