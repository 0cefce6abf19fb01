//! Tables of published rates: CSV with a header, one measured run a line.

use std::collections::BTreeMap;
use std::path::Path;

use super::rows::Row;
use rooflinectl::failure::Failure;
use rooflined_core::board::OperatingPoint;
use rooflined_core::hardware::{Kind, registry};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::Hertz;
use rooflined_models::transformer::Phase;
use rooflined_predict::Engine;
use rooflined_predict::costs::Build;
use rooflined_predict::power::Rails;

/// Most bytes of a table.
const MAX_BYTES: u64 = 64 << 20;

/// A table and what of it is of no use here.
#[derive(Debug, Default)]
pub struct Published {
    pub rows: Vec<Row>,
    /// Rows left out, by reason.
    pub left_out: BTreeMap<String, u64>,
}

/// Which rows of a table are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Those whose source tells enough to learn from them.
    FirstHand,
    /// Second-hand and unclear ones too.
    All,
}

/// The rows of a table to learn from.
pub fn read(path: &Path) -> Result<Published, Failure> {
    read_wanted(path, Wanted::FirstHand)
}

pub fn read_wanted(path: &Path, wanted: Wanted) -> Result<Published, Failure> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::failed(
            format!("{}: {why}", path.display()),
            "give a CSV file with the columns id, device, engine, arch, quant, batch, phase and tok_s",
        )
    };
    let about = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
    if !about.is_file() || about.len() > MAX_BYTES {
        return Err(unreadable(&format!("not a file of at most {MAX_BYTES} bytes")));
    }
    let mut reader = csv::Reader::from_path(path).map_err(|error| unreadable(&error))?;
    let header = reader.headers().map_err(|error| unreadable(&error))?.clone();
    for column in ["id", "device", "engine", "arch", "quant", "batch", "phase", "tok_s"] {
        if !header.iter().any(|name| name == column) {
            return Err(unreadable(&format!("it has no column {column:?}")));
        }
    }
    let mut published = Published::default();
    let records = reader.records().collect::<Result<Vec<_>, _>>().map_err(|error| unreadable(&error))?;
    let all = || records.iter().map(|record| header.iter().zip(record).collect::<BTreeMap<&str, &str>>());
    let mut told: BTreeMap<String, Rails> = BTreeMap::new();
    for fields in all() {
        let said = |name| fields.get(name).copied().unwrap_or_default();
        if let Some(Some(rails)) = rails(said("source"), said("notes")) {
            told.insert(said("source").to_owned(), rails);
        }
    }
    for fields in all() {
        match row(&fields, &told, wanted) {
            Ok(row) => published.rows.push(row),
            Err(why) => *published.left_out.entry(why).or_default() += 1,
        }
    }
    Ok(published)
}

/// A row, or why it is of no use.
fn row(fields: &BTreeMap<&str, &str>, told: &BTreeMap<String, Rails>, wanted: Wanted) -> Result<Row, String> {
    let text = |name: &str| fields.get(name).map(|text| text.trim()).unwrap_or_default();
    let number = |name: &str| -> Result<Option<f64>, String> {
        match text(name) {
            "" => Ok(None),
            value => match value.parse::<f64>() {
                Ok(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
                _ => Err(format!("{name} is no number of 0 or more")),
            },
        }
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts, checked to be no less than 0"
    )]
    let count = |name: &str| number(name).map(|number| number.map(|number| number as u64));
    if wanted == Wanted::FirstHand && text("quality") == "C" {
        return Err("second-hand or unclear (quality C)".to_owned());
    }
    if text("arch").is_empty() {
        return Err("no architecture given".to_owned());
    }
    let engine = engine(text("engine")).ok_or_else(|| format!("engine {}", text("engine")))?;
    let format = format(text("quant")).ok_or_else(|| format!("storage {}", text("quant")))?;
    let hardware = hardware(text("device")).ok_or_else(|| format!("device {}", text("device")))?;
    let kv_format = if text("kv_bits") == "8" { WeightFormat::Fp8E4m3 } else { WeightFormat::Fp16 };
    let generated = count("gen_len")?.unwrap_or(0);
    let phase = match text("phase") {
        "decode" if generated > 0 && includes_prompts(text("notes")) => Phase::Serve,
        "decode" => Phase::Decode,
        "prefill" => Phase::Prefill,
        other => return Err(format!("phase {other:?}")),
    };
    let tokens_per_s = number("tok_s")?.filter(|rate| *rate > 0.0).ok_or("no rate")?;
    let depth = count("depth")?.unwrap_or(0);
    let context_tokens = match phase {
        // The mean depth while the answer was generated.
        Phase::Decode => depth + generated / 2,
        Phase::Prefill => depth,
        // The prompt fills the cache.
        Phase::Serve => 0,
    };
    let hertz = |name: &str| Ok::<_, String>(number(name)?.map(|mhz| Hertz(mhz * 1e6)));
    let of_card = is_card(&hardware).then_some(Rails::Gpu);
    Ok(Row {
        id: text("id").to_owned(),
        hardware,
        mode: mode(text("power_mode"), text("power_limit_w")),
        point: OperatingPoint {
            gpu_clock: hertz("gpu_mhz")?,
            sm_online: count("sm_online")?.and_then(|sm| u32::try_from(sm).ok()),
            memory_clock: hertz("emc_mhz")?,
            ..OperatingPoint::default()
        },
        engine,
        build: Build::of(engine, text("engine_version")),
        added: text("added").to_owned(),
        model: text("arch").to_ascii_lowercase(),
        format,
        kv_format,
        phase,
        batch: count("batch")?.unwrap_or(1).max(1),
        context_tokens,
        // llama-bench's usual prompt where none is given.
        prompt_tokens: count("prompt_len")?.filter(|tokens| *tokens > 0).unwrap_or(512),
        output_tokens: if phase == Phase::Serve { generated } else { 0 },
        tokens_per_s,
        power_w: number("power_w")?,
        source: text("source").to_owned(),
        // One table of a source has one meter; that of a card is NVML's where nothing else is said.
        rails: rails(text("source"), text("notes"))
            .unwrap_or_else(|| told.get(text("source")).copied().or(of_card)),
        idle_w: idle(text("notes")),
        limit_w: number("power_limit_w")?,
    })
}

fn is_card(key: &str) -> bool {
    registry().get(key).is_some_and(|hardware| hardware.kind == Kind::Discrete)
}

/// Whether the rate of an answer counts the time of its prompt, in the words that the table's sources use.
fn includes_prompts(notes: &str) -> bool {
    const WORDS: [&str; 4] =
        ["includes their prefill", "incl. prefill", "incl. prompts", "; includes prompts"];
    WORDS.iter().any(|words| notes.contains(words))
}

/// What the meter covered, in the words that the table's sources use: `Some(None)` for a meter of no use, such as that of
/// a socket, `None` where they say nothing.
fn rails(source: &str, notes: &str) -> Option<Option<Rails>> {
    const WORDS: [(&str, Option<Rails>); 6] = [
        ("board total", None),
        ("wall", None),
        ("VDD_CPU_GPU_CV", Some(Rails::VddCpuGpuCv)),
        ("INA3221 sum", Some(Rails::Module)),
        ("VDD_IN", Some(Rails::Module)),
        ("nvidia-smi GPU power", Some(Rails::Gpu)),
    ];
    let said = |words: &str| source.contains(words) || notes.contains(words);
    WORDS.into_iter().find(|(words, _)| said(words)).map(|(_, rails)| rails)
}

/// The idle power that a note tells: `idle 11.16 W`.
fn idle(notes: &str) -> Option<f64> {
    let (_, after) = notes.split_once("idle ")?;
    let (number, _) = after.split_once(" W")?;
    number.parse().ok().filter(|watts: &f64| watts.is_finite() && *watts > 0.0)
}

/// A power limit of a card is a mode of it.
fn mode(power_mode: &str, limit_w: &str) -> String {
    match (power_mode, limit_w) {
        ("", "") => String::new(),
        ("", limit) => format!("{limit} W"),
        (mode, _) => mode.to_owned(),
    }
}

fn engine(name: &str) -> Option<Engine> {
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "hf-transformers" => Some(Engine::Torch),
        _ => Engine::ALL.into_iter().find(|engine| engine.key() == lower),
    }
}

/// A storage as people write it.
fn format(name: &str) -> Option<WeightFormat> {
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "f16" => Some(WeightFormat::Fp16),
        "fp8" => Some(WeightFormat::Fp8E4m3),
        "awq-int4" | "int4-awq" => Some(WeightFormat::AwqInt4),
        "gptq-int4" => Some(WeightFormat::GptqInt4),
        "w4a16" => Some(WeightFormat::Int4G128),
        "int4-mlc" | "q4f16_1" => Some(WeightFormat::Int4G32),
        other => other.parse().ok(),
    }
}

/// A device by its key, with or without the prefix of the Jetsons.
fn hardware(name: &str) -> Option<String> {
    let key = match name {
        "agx-thor" => "jetson-agx-thor-t5000",
        "agx-xavier-32gb" => "jetson-agx-xavier",
        "a100-sxm-80" => "a100-80gb",
        "a100-sxm-40" => "a100-40gb",
        "thor-t4000" => "jetson-agx-thor-t4000",
        other => other,
    };
    registry().get(key).map(|hardware| hardware.key.clone())
}
