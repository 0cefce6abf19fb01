//! Lines written out, so that a change of any is seen.

use answer::settings::{Device, Text};
use roofline::precision::WeightFormat;

use super::{SERVE, gpu, setting};

#[test]
fn llama_cpp_lines_are_these() {
    let orin = gpu(8, 7);
    for (format, device, text, expected) in [
        ("q4_k_m", orin, None, "llama-quantize MODEL-F16.gguf MODEL.gguf Q4_K_M"),
        (
            "q4_k_m",
            orin,
            Some(SERVE),
            "llama-quantize MODEL-F16.gguf MODEL.gguf Q4_K_M && llama-server -m MODEL.gguf -c 8192 -np 4 -b 2048 \
             -ub 512 -ngl 999",
        ),
        (
            "iq2_xxs",
            Device::Cpu { threads: Some(6) },
            Some(Text { kv_format: Some(WeightFormat::Q8_0), ..SERVE }),
            "llama-quantize --imatrix IMATRIX MODEL-F16.gguf MODEL.gguf IQ2_XXS && llama-server -m MODEL.gguf -c 8192 \
             -np 4 -b 2048 -ub 512 -ngl 0 -t 6 -fa on -ctk q8_0 -ctv q8_0",
        ),
        ("bf16", orin, None, "convert_hf_to_gguf.py CHECKPOINT --outtype bf16 --outfile MODEL.gguf"),
        ("mxfp4", orin, None, "llama-quantize MODEL-F16.gguf MODEL.gguf MXFP4_MOE"),
        ("awq_int4", orin, None, "not available: GGUF files have no awq_int4; nearest: q4_k_m"),
    ] {
        assert_eq!(setting(format, text, device, "llama.cpp"), expected);
    }
}

#[test]
fn vllm_lines_are_these() {
    let orin = gpu(8, 7);
    for (format, device, kv_format, expected) in [
        (
            "fp8_e4m3",
            orin,
            Some(WeightFormat::Fp8E4m3),
            "vllm serve CHECKPOINT --quantization fp8_per_tensor --max-num-seqs 4 --max-model-len 2048 \
             --max-num-batched-tokens 516 --kv-cache-dtype fp8_e4m3",
        ),
        (
            "awq_int4",
            orin,
            None,
            "vllm serve CHECKPOINT --max-num-seqs 4 --max-model-len 2048 --max-num-batched-tokens 516  \
             # CHECKPOINT: of AWQ, 4 bits, group_size 128",
        ),
        (
            "q4_k_m",
            orin,
            None,
            "vllm serve MODEL.gguf --tokenizer CHECKPOINT --max-num-seqs 4 --max-model-len 2048 \
             --max-num-batched-tokens 516  # with pip install \"vllm[extra-quant]\"",
        ),
        ("nf4", orin, None, "not available: vLLM has no nf4; nearest: awq_int4"),
        (
            "nvfp4",
            Device::Cpu { threads: None },
            None,
            "not available: vLLM has no nvfp4 on a CPU; nearest: awq_int4",
        ),
    ] {
        assert_eq!(setting(format, Some(Text { kv_format, ..SERVE }), device, "vllm"), expected);
    }
}

#[test]
fn tensorrt_lines_are_these() {
    for (engine, format, device, kv_format, expected) in [
        (
            "tensorrt-llm",
            "awq_int4",
            gpu(9, 0),
            Some(WeightFormat::Fp8E4m3),
            "trtllm-serve CHECKPOINT --max_batch_size 4 --max_seq_len 2048 --max_num_tokens 516 \
             --extra_llm_api_options KV.yaml  # CHECKPOINT: by ModelOpt, quant_algo W4A16_AWQ; KV.yaml: \
             kv_cache_config: {dtype: fp8}",
        ),
        (
            "tensorrt-llm",
            "nvfp4",
            gpu(9, 0),
            None,
            "not available: NVFP4 in TensorRT-LLM needs compute capability 10.0 and this GPU has 9.0",
        ),
        (
            "tensorrt-edge-llm",
            "nvfp4",
            gpu(11, 0),
            Some(WeightFormat::Fp8E4m3),
            "tensorrt-edgellm-quantize llm --model_dir CHECKPOINT --output_dir QUANTIZED --quantization nvfp4 \
             --lm_head_quantization fp8 --kv_cache_quantization fp8 && tensorrt-edgellm-build --model-dir QUANTIZED \
             --engine-dir ENGINE --max-batch-size 4 --max-input-len 512 --max-kv-cache-capacity 2048",
        ),
        (
            "tensorrt-edge-llm",
            "fp16",
            gpu(8, 7),
            None,
            "tensorrt-edgellm-build --model-dir CHECKPOINT --engine-dir ENGINE --max-batch-size 4 --max-input-len 512 \
             --max-kv-cache-capacity 2048",
        ),
        (
            "tensorrt-edge-llm",
            "fp8_e4m3",
            gpu(8, 7),
            None,
            "not available: fp8_e4m3 in TensorRT-Edge-LLM needs compute capability 8.9 and this GPU has 8.7",
        ),
    ] {
        assert_eq!(setting(format, Some(Text { kv_format, ..SERVE }), device, engine), expected);
    }
}

#[test]
fn mlc_lines_are_these() {
    assert_eq!(
        setting("int4_g32", Some(SERVE), gpu(8, 7), "mlc"),
        "mlc_llm convert_weight CHECKPOINT --quantization q4f16_1 -o MODEL && mlc_llm gen_config CHECKPOINT --quantization \
         q4f16_1 --conv-template TEMPLATE -o MODEL && mlc_llm serve MODEL --device cuda --mode server --overrides \
         \"max_num_sequence=4;max_total_seq_length=8192;context_window_size=2048;prefill_chunk_size=512\""
    );
    let line = setting("int8", None, gpu(8, 7), "mlc");
    assert_eq!(line, "not available: MLC LLM has no quantisation for int8; nearest: fp8_e4m3");
}

#[test]
fn torchao_configurations_are_these() {
    let (cpu, orin, ada, thor) = (Device::Cpu { threads: None }, gpu(8, 7), gpu(8, 9), gpu(11, 0));
    for (format, device, expected) in [
        ("bf16", cpu, "none: model.to(torch.bfloat16)"),
        ("int8", orin, "Int8WeightOnlyConfig()"),
        (
            "int4_g128",
            orin,
            "Int4WeightOnlyConfig(group_size=128, int4_packing_format=\"tile_packed_to_4d\")",
        ),
        ("int4_g32", cpu, "PrototypeInt4WeightOnlyConfig(group_size=32)"),
        ("int4", orin, "not available: torchao packs 4-bit integers in groups only; nearest: int4_g128"),
        ("fp8_e4m3", orin, "Float8WeightOnlyConfig(granularity=PerTensor())"),
        ("fp8_e4m3", ada, "Float8DynamicActivationFloat8WeightConfig(granularity=PerTensor())"),
        ("nf4", orin, "NF4WeightOnlyConfig()"),
        ("nvfp4", orin, "NVFP4WeightOnlyConfig()"),
        ("nvfp4", thor, "NVFP4DynamicActivationNVFP4WeightConfig(use_triton_kernel=False)"),
        ("mxfp8", thor, "MXDynamicActivationMXWeightConfig()"),
        (
            "mxfp4",
            thor,
            "MXDynamicActivationMXWeightConfig(activation_dtype=torch.float4_e2m1fn_x2, \
             weight_dtype=torch.float4_e2m1fn_x2)",
        ),
        (
            "mxfp4",
            orin,
            "not available: torchao computes MXFP4 from compute capability 10.0 on, elsewhere emulates it; nearest: \
             nvfp4",
        ),
        ("q4_k_m", orin, "not available: torchao reads no GGUF files; nearest: awq_int4"),
    ] {
        assert_eq!(setting(format, None, device, "torchao"), expected);
    }
}

#[test]
fn torch_lines_can_be_run_as_they_are() {
    assert_eq!(
        setting("nvfp4", None, Device::Cpu { threads: Some(8) }, "torch"),
        "import torch; from torchao.quantization import quantize_; from torchao.prototype.mx_formats import \
         NVFP4WeightOnlyConfig; torch.set_num_threads(8); model = model.to(torch.bfloat16); quantize_(model, \
         NVFP4WeightOnlyConfig())"
    );
    assert_eq!(
        setting("awq_int4", None, gpu(8, 7), "torch"),
        "import torch; from torchao.quantization import Int4WeightOnlyConfig, quantize_; from torchao.prototype.awq import \
         AWQConfig; model = model.to(\"cuda\", torch.bfloat16); quantize_(model, AWQConfig(Int4WeightOnlyConfig(\
         group_size=128, int4_packing_format=\"tile_packed_to_4d\"), step=\"prepare\")); calibrate(model); quantize_(model, \
         AWQConfig(Int4WeightOnlyConfig(group_size=128, int4_packing_format=\"tile_packed_to_4d\"), step=\"convert\"))"
    );
}
