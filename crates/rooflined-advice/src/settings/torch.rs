//! `PyTorch` with torchao: a configuration for `quantize_`, with what has to be imported.
//!
//! Where torchao's own default needs kernels of a package that the registry does not have (mslk), the packing or the
//! switch is chosen that needs none.

use super::{Chosen, Device, checkpoint};
use rooflined_core::precision::WeightFormat;
use rooflined_models::recipe::Recipe;

/// What makes a model's weights a format.
enum Means {
    /// Nothing but the type of the whole model.
    Type(&'static str),
    /// A configuration for `quantize_`, and the type that it wants of the model first.
    Config { config: String, dtype: &'static str },
    /// Two: before calibration data is run through the model, and after.
    Calibrated { observe: String, convert: String },
}

/// The configuration alone.
pub(super) fn config(recipe: Recipe, chosen: &Chosen<'_>) -> Option<String> {
    Some(match means(checkpoint(recipe)?, chosen.device)? {
        Means::Type(dtype) => format!("none: model.to(torch.{dtype})"),
        Means::Config { config, .. } => config,
        Means::Calibrated { observe, .. } => observe,
    })
}

/// Lines that can be run where there is a `model`.
pub(super) fn settings(recipe: Recipe, chosen: &Chosen<'_>) -> Option<String> {
    let format = checkpoint(recipe)?;
    let means = means(format, chosen.device)?;
    let (place, threads) = match chosen.device {
        Device::Gpu { .. } => ("\"cuda\", ", String::new()),
        Device::Cpu { threads: Some(threads) } => ("", format!("torch.set_num_threads({threads}); ")),
        Device::Cpu { threads: None } => ("", String::new()),
    };
    let cast = |dtype: &str| format!("{threads}model = model.to({place}torch.{dtype})");
    Some(match means {
        Means::Type(dtype) if format == WeightFormat::Tf32 => {
            format!("import torch; torch.set_float32_matmul_precision(\"high\"); {}", cast(dtype))
        }
        Means::Type(dtype) => format!("import torch; {}", cast(dtype)),
        Means::Config { config, dtype } => {
            format!("import torch; {}; {}; quantize_(model, {config})", imports(&config), cast(dtype))
        }
        Means::Calibrated { observe, convert } => format!(
            "import torch; {}; {}; quantize_(model, {observe}); calibrate(model); quantize_(model, {convert})",
            imports(&observe),
            cast("bfloat16")
        ),
    })
}

fn means(format: WeightFormat, device: Device) -> Option<Means> {
    use WeightFormat as F;
    // GPUs before 8.0 have no units for bf16.
    let dtype = if device.is_cpu() || device.at_least((8, 0)) { "bfloat16" } else { "float16" };
    let in_half = |config: &str| Means::Config { config: config.to_owned(), dtype };
    Some(match format {
        F::Fp32 | F::Tf32 => Means::Type("float32"),
        F::Fp16 => Means::Type("float16"),
        F::Bf16 => Means::Type("bfloat16"),
        F::Int8 => in_half("Int8WeightOnlyConfig()"),
        F::Int4G32 => in_half(&int4(32, device)),
        F::Int4G64 => in_half(&int4(64, device)),
        F::Int4G128 => in_half(&int4(128, device)),
        F::AwqInt4 => {
            let base = int4(128, device);
            calibrated(|step| format!("AWQConfig({base}, step=\"{step}\")"), "prepare")
        }
        F::GptqInt4 => calibrated(
            |step| format!("GPTQConfig(step=\"{step}\", base_config=Int4WeightOnlyConfig(group_size=128))"),
            "observe",
        ),
        // Units for FP8; elsewhere the weights alone are kept in it.
        F::Fp8E4m3 if device.at_least((8, 9)) => {
            in_half("Float8DynamicActivationFloat8WeightConfig(granularity=PerTensor())")
        }
        F::Fp8E4m3 => in_half("Float8WeightOnlyConfig(granularity=PerTensor())"),
        F::Fp8E5m2 => {
            in_half("Float8WeightOnlyConfig(weight_dtype=torch.float8_e5m2, granularity=PerTensor())")
        }
        // It takes no arguments: blocks of 64.
        F::Nf4 => in_half("NF4WeightOnlyConfig()"),
        F::Nvfp4 => in_half("NVFP4DynamicActivationNVFP4WeightConfig(use_triton_kernel=False)"),
        F::Mxfp8 => in_half("MXDynamicActivationMXWeightConfig()"),
        F::Mxfp4 => in_half(
            "MXDynamicActivationMXWeightConfig(activation_dtype=torch.float4_e2m1fn_x2, \
             weight_dtype=torch.float4_e2m1fn_x2)",
        ),
        _ => return None,
    })
}

/// Packed for the multiplication in torch itself; the default packing is that of mslk.
fn int4(group: u32, device: Device) -> String {
    if device.is_cpu() {
        format!("PrototypeInt4WeightOnlyConfig(group_size={group})")
    } else {
        format!("Int4WeightOnlyConfig(group_size={group}, int4_packing_format=\"tile_packed_to_4d\")")
    }
}

fn calibrated(config: impl Fn(&str) -> String, observe: &str) -> Means {
    Means::Calibrated { observe: config(observe), convert: config("convert") }
}

/// Where the names of a configuration come from.
const HOMES: [(&str, &[&str]); 6] = [
    (
        "torchao.quantization",
        &[
            "Int8WeightOnlyConfig",
            "Int4WeightOnlyConfig",
            "Float8WeightOnlyConfig",
            "Float8DynamicActivationFloat8WeightConfig",
            "PerTensor",
        ],
    ),
    (
        "torchao.prototype.mx_formats",
        &["NVFP4DynamicActivationNVFP4WeightConfig", "MXDynamicActivationMXWeightConfig"],
    ),
    ("torchao.prototype.quantization.int4", &["PrototypeInt4WeightOnlyConfig"]),
    ("torchao.prototype._nf4tensor_api", &["NF4WeightOnlyConfig"]),
    ("torchao.prototype.awq", &["AWQConfig"]),
    ("torchao.prototype.gptq", &["GPTQConfig"]),
];

fn imports(config: &str) -> String {
    let used: Vec<&str> =
        config.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).collect();
    let mut lines = Vec::new();
    for (module, names) in HOMES {
        let mut names: Vec<&str> = names.iter().copied().filter(|name| used.contains(name)).collect();
        if module == "torchao.quantization" {
            names.push("quantize_");
        }
        if !names.is_empty() {
            lines.push(format!("from {module} import {}", names.join(", ")));
        }
    }
    lines.join("; ")
}
