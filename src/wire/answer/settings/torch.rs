//! `PyTorch` with torchao: a configuration for `quantize_`, with what has to be imported.
//!
//! Where torchao's own default needs kernels of a package that the registry does not have (mslk), the packing or the
//! switch is chosen that needs none.

use super::{Chosen, Device, Missing, Settings, checkpoint};
use roofline::precision::WeightFormat;
use roofline::workload::recipe::Recipe;

/// For GGUF mixes.
const INSTEAD: [&str; 2] = ["int8", "awq_int4"];

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
pub(super) fn config(recipe: Recipe, chosen: &Chosen<'_>) -> Settings {
    Ok(match means(checkpoint(recipe, "torchao", INSTEAD)?, chosen.device)? {
        Means::Type(dtype) => format!("none: model.to(torch.{dtype})"),
        Means::Config { config, .. } => config,
        Means::Calibrated { observe, .. } => observe,
    })
}

/// Lines that can be run where there is a `model`.
pub(super) fn settings(recipe: Recipe, chosen: &Chosen<'_>) -> Settings {
    let format = checkpoint(recipe, "torch", INSTEAD)?;
    let means = means(format, chosen.device)?;
    let plain = |kv: &WeightFormat| matches!(kv, WeightFormat::Bf16 | WeightFormat::Fp32);
    if let Some(kv) = chosen.text.and_then(|text| text.kv(format)).filter(|kv| !plain(kv)) {
        return Err(Missing::cache("torch", kv, WeightFormat::Bf16));
    }
    let (place, threads) = match chosen.device {
        Device::Gpu { .. } => ("\"cuda\", ", String::new()),
        Device::Cpu { threads: Some(threads) } => ("", format!("torch.set_num_threads({threads}); ")),
        Device::Cpu { threads: None } => ("", String::new()),
    };
    let cast = |dtype: &str| format!("{threads}model = model.to({place}torch.{dtype})");
    Ok(match means {
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

fn means(format: WeightFormat, device: Device) -> Result<Means, Missing> {
    use WeightFormat as F;
    let in_bf16 = |config: &str| Ok(Means::Config { config: config.to_owned(), dtype: "bfloat16" });
    match format {
        F::Fp32 => Ok(Means::Type("float32")),
        F::Tf32 if device.is_cpu() => Err(Missing::but("CPUs have no TF32", "fp32")),
        F::Tf32 => device.at_least((8, 0), "TF32").map(|()| Means::Type("float32")),
        F::Fp16 => Ok(Means::Type("float16")),
        F::Bf16 => Ok(Means::Type("bfloat16")),
        F::Int8 => in_bf16("Int8WeightOnlyConfig()"),
        F::Int4 => Err(Missing::but("torchao packs 4-bit integers in groups only", "int4_g128")),
        F::Int4G32 => int4(32, device).and_then(|config| in_bf16(&config)),
        F::Int4G64 => int4(64, device).and_then(|config| in_bf16(&config)),
        F::Int4G128 => int4(128, device).and_then(|config| in_bf16(&config)),
        F::AwqInt4 => {
            let base = int4(128, device)?;
            Ok(calibrated(|step| format!("AWQConfig({base}, step=\"{step}\")"), "prepare"))
        }
        F::GptqInt4 if device.is_cpu() => {
            Err(Missing::but("torchao's GPTQ of 4 bits needs the GPU kernels of mslk", "int4_g128"))
        }
        F::GptqInt4 => Ok(calibrated(
            |step| format!("GPTQConfig(step=\"{step}\", base_config=Int4WeightOnlyConfig(group_size=128))"),
            "observe",
        )),
        F::Fp8E4m3 if multiplies_fp8(device) => {
            in_bf16("Float8DynamicActivationFloat8WeightConfig(granularity=PerTensor())")
        }
        F::Fp8E4m3 => in_bf16("Float8WeightOnlyConfig(granularity=PerTensor())"),
        F::Fp8E5m2 => {
            in_bf16("Float8WeightOnlyConfig(weight_dtype=torch.float8_e5m2, granularity=PerTensor())")
        }
        // It takes no arguments: blocks of 64.
        F::Nf4 => in_bf16("NF4WeightOnlyConfig()"),
        F::Nvfp4 if is_blackwell(device) => {
            in_bf16("NVFP4DynamicActivationNVFP4WeightConfig(use_triton_kernel=False)")
        }
        F::Nvfp4 => in_bf16("NVFP4WeightOnlyConfig()"),
        F::Mxfp8 => {
            microscaled("MXFP8", "int8", device)?;
            in_bf16("MXDynamicActivationMXWeightConfig()")
        }
        F::Mxfp4 => {
            microscaled("MXFP4", "nvfp4", device)?;
            in_bf16(
                "MXDynamicActivationMXWeightConfig(activation_dtype=torch.float4_e2m1fn_x2, \
                 weight_dtype=torch.float4_e2m1fn_x2)",
            )
        }
        _ => Err(Missing::because(format!("torchao has no {format}"))),
    }
}

/// Packed for the multiplication in torch itself; the default packing is that of mslk.
fn int4(group: u32, device: Device) -> Settings {
    device.at_least((8, 0), "torch's product with 4-bit integers")?;
    Ok(if device.is_cpu() {
        format!("PrototypeInt4WeightOnlyConfig(group_size={group})")
    } else {
        format!("Int4WeightOnlyConfig(group_size={group}, int4_packing_format=\"tile_packed_to_4d\")")
    })
}

fn calibrated(config: impl Fn(&str) -> String, observe: &str) -> Means {
    Means::Calibrated { observe: config(observe), convert: config("convert") }
}

fn multiplies_fp8(device: Device) -> bool {
    !device.is_cpu() && device.at_least((8, 9), "").is_ok()
}

fn is_blackwell(device: Device) -> bool {
    !device.is_cpu() && device.at_least((10, 0), "").is_ok()
}

fn microscaled(what: &str, nearest: &'static str, device: Device) -> Result<(), Missing> {
    if is_blackwell(device) {
        return Ok(());
    }
    Err(Missing::but(
        format!("torchao computes {what} from compute capability 10.0 on, elsewhere emulates it"),
        nearest,
    ))
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
        &[
            "NVFP4WeightOnlyConfig",
            "NVFP4DynamicActivationNVFP4WeightConfig",
            "MXDynamicActivationMXWeightConfig",
        ],
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
