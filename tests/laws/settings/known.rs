//! Lines written out, so that a change of any is seen.

use rooflined_advice::settings::{Chosen, Device, Text, settings};
use rooflined_core::precision::WeightFormat;
use rooflined_predict::optimize::ModelOrigin;

use super::{SERVE, SHARED, chosen, gpu, setting};

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
             -ub 512 -ngl 999 --fit off --cache-ram 0 --ctx-checkpoints 2 --cache-prompt",
        ),
        (
            "iq2_xxs",
            Device::Cpu { threads: Some(6) },
            Some(Text { kv_format: Some(WeightFormat::Q8_0), ..SERVE }),
            "llama-quantize --imatrix IMATRIX MODEL-F16.gguf MODEL.gguf IQ2_XXS && llama-server -m MODEL.gguf -c 8192 \
             -np 4 -b 2048 -ub 512 -ngl 0 -t 6 --fit off --cache-ram 0 --ctx-checkpoints 2 --cache-prompt -fa on -ctk q8_0 -ctv q8_0",
        ),
        ("bf16", orin, None, "convert_hf_to_gguf.py CHECKPOINT --outtype bf16 --outfile MODEL.gguf"),
        ("mxfp4", orin, None, "llama-quantize MODEL-F16.gguf MODEL.gguf MXFP4_MOE"),
        ("awq_int4", orin, None, "not available: llama.cpp has no awq_int4; nearest: q4_k_m"),
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
            gpu(8, 9),
            Some(WeightFormat::Fp8E4m3),
            "vllm serve CHECKPOINT --quantization fp8_per_tensor --max-num-seqs 4 --max-model-len 2048 \
             --max-num-batched-tokens 516 --enable-prefix-caching --kv-cache-dtype fp8_e4m3",
        ),
        (
            "fp16",
            orin,
            Some(WeightFormat::Fp8E4m3),
            "not available: keys and values: fp8_e4m3 in vLLM needs compute capability 8.9 and this GPU has 8.7; \
             nearest: kv_format int8",
        ),
        (
            "nvfp4",
            orin,
            None,
            "not available: nvfp4 in vLLM needs compute capability 10.0 and this GPU has 8.7: older GPUs have no unit \
             for FP4, and vLLM expands it to 16 bits (Marlin); nearest: awq_int4",
        ),
        (
            "awq_int4",
            orin,
            None,
            "vllm serve CHECKPOINT --max-num-seqs 4 --max-model-len 2048 --max-num-batched-tokens 516 \
             --enable-prefix-caching  # CHECKPOINT: of AWQ, 4 bits, group_size 128",
        ),
        (
            "q4_k_m",
            orin,
            None,
            "not available: vLLM reads GGUF files through a plugin that is not tuned and slow; nearest: awq_int4",
        ),
        ("nf4", orin, None, "not available: vLLM has no nf4; nearest: awq_int4"),
        (
            "nvfp4",
            Device::Cpu { threads: None },
            None,
            "not available: vLLM has no nvfp4 on CPUs; nearest: awq_int4",
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
            "not available: nvfp4 in TensorRT-LLM needs compute capability 10.0 and this GPU has 9.0; nearest: awq_int4",
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
            "not available: fp8_e4m3 in TensorRT-Edge-LLM needs compute capability 8.9 and this GPU has 8.7; nearest: int8",
        ),
        (
            "tensorrt-llm",
            "fp16",
            gpu(8, 7),
            None,
            "not available: TensorRT-LLM does not support compute capability 8.7: on Jetsons use tensorrt-edge-llm",
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
    assert_eq!(line, "not available: MLC LLM has no int8; nearest: fp16");
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
        ("int4", orin, "not available: torchao has no int4; nearest: int4_g128"),
        ("fp8_e4m3", orin, "Float8WeightOnlyConfig(granularity=PerTensor())"),
        ("fp8_e4m3", ada, "Float8DynamicActivationFloat8WeightConfig(granularity=PerTensor())"),
        ("nf4", orin, "NF4WeightOnlyConfig()"),
        (
            "nvfp4",
            orin,
            "not available: nvfp4 in torchao needs compute capability 10.0 and this GPU has 8.7: elsewhere torchao \
             emulates it; nearest: int4_g128",
        ),
        ("nvfp4", thor, "NVFP4DynamicActivationNVFP4WeightConfig(use_triton_kernel=False)"),
        ("mxfp8", thor, "MXDynamicActivationMXWeightConfig()"),
        (
            "mxfp4",
            thor,
            "MXDynamicActivationMXWeightConfig(activation_dtype=torch.float4_e2m1fn_x2, \
             weight_dtype=torch.float4_e2m1fn_x2)",
        ),
        ("q4_k_m", orin, "not available: torchao reads no GGUF files (q4_k_m); nearest: int4_g128"),
    ] {
        assert_eq!(setting(format, None, device, "torchao"), expected);
    }
}

#[test]
fn torch_lines_can_be_run_as_they_are() {
    assert_eq!(
        setting("nf4", None, Device::Cpu { threads: Some(8) }, "torch"),
        "import torch; from torchao.quantization import quantize_; from torchao.prototype._nf4tensor_api import \
         NF4WeightOnlyConfig; torch.set_num_threads(8); model = model.to(torch.bfloat16); quantize_(model, \
         NF4WeightOnlyConfig())"
    );
    assert_eq!(
        setting("awq_int4", None, gpu(8, 7), "torch"),
        "import torch; from torchao.quantization import Int4WeightOnlyConfig, quantize_; from torchao.prototype.awq import \
         AWQConfig; model = model.to(\"cuda\", torch.bfloat16); quantize_(model, AWQConfig(Int4WeightOnlyConfig(\
         group_size=128, int4_packing_format=\"tile_packed_to_4d\"), step=\"prepare\")); calibrate(model); quantize_(model, \
         AWQConfig(Int4WeightOnlyConfig(group_size=128, int4_packing_format=\"tile_packed_to_4d\"), step=\"convert\"))"
    );
}

/// gpt-oss is published in MXFP4: nothing is quantised again.
#[test]
fn what_is_published_packed_is_served_as_it_is() {
    let chat = Text {
        batch: 1,
        context_tokens: 4096,
        prompt_tokens: 0,
        chunk_tokens: None,
        kv_format: None,
        drafts: None,
        cpu_moe_layers: 0,
        gpu_layers: None,
    };
    let of = |origin, shared| settings(&Chosen { origin, shared, ..chosen("mxfp4", Some(chat), gpu(12, 1)) });
    let checkpoint = of(ModelOrigin::Checkpoint, Some(SHARED));
    assert_eq!(
        checkpoint["llama.cpp"],
        "convert_hf_to_gguf.py CHECKPOINT --outfile MODEL.gguf && llama-server -m MODEL.gguf -c 4096 -np 1 -b 2048 -ub 512 \
         -ngl 999 --fit off --cache-ram 0 --ctx-checkpoints 0"
    );
    assert_eq!(
        checkpoint["vllm"],
        "vllm serve CHECKPOINT --max-num-seqs 1 --max-model-len 4096 --max-num-batched-tokens 2049 \
         --gpu-memory-utilization 0.160  # CHECKPOINT: as published"
    );
    // 4 GB with 2 % more, of 120 - 16.
    let line = checkpoint["tensorrt-llm"].as_str().unwrap();
    assert!(line.contains(" --kv_cache_free_gpu_memory_fraction 0.040 "), "{line}");
    let file = of(ModelOrigin::File, None);
    assert_eq!(
        file["llama.cpp"],
        "llama-server -m MODEL.gguf -c 4096 -np 1 -b 2048 -ub 512 -ngl 999 --fit off --cache-ram 0 --ctx-checkpoints 0"
    );
}

/// One pass takes what was predicted for it.
#[test]
fn a_chunk_that_was_predicted_is_the_physical_batch() {
    let text = Text { chunk_tokens: Some(1024), prompt_tokens: 8192, context_tokens: 8320, ..SERVE };
    let line = setting("q4_k_m", Some(text), gpu(8, 7), "llama.cpp");
    assert!(line.contains(" -b 2048 -ub 1024 "), "{line}");
    let line = setting("awq_int4", Some(text), gpu(8, 7), "vllm");
    assert!(line.contains(" --max-num-batched-tokens 1028 "), "{line}");
}
