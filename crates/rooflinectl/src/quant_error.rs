//! `quant-error`: what each format would lose on a file's own weights.

use rooflined_core::units::significant;
use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::args::QuantErrorArgs;
use super::failure::Failure;
use super::input;
use super::output::{Format, Printer};
use super::table::Table;
use super::tensors::{self, TensorError, TensorFile, is_readable};
use super::words;
use super::working::{Counted, Working};
use rooflined_core::precision::WeightFormat;
use rooflined_core::precision::quantise::{self, ModelError, Refusal, without_encoder};
use rooflined_models::import::Tensor;
use rooflined_models::registry::models;

/// Most weights of one tensor that are held at a time.
const MAX_HELD: u64 = 1 << 24;

/// Formats compared where none are named.
const USUAL: &[WeightFormat] = &[
    WeightFormat::Fp16,
    WeightFormat::Bf16,
    WeightFormat::Fp8E4m3,
    WeightFormat::Fp8E5m2,
    WeightFormat::Mxfp8,
    WeightFormat::Int8,
    WeightFormat::Q8_0,
    WeightFormat::Q6K,
    WeightFormat::Q5KM,
    WeightFormat::Q4KM,
    WeightFormat::Q3KM,
    WeightFormat::Q2K,
    WeightFormat::Q4_0,
    WeightFormat::Iq4Xs,
    WeightFormat::Nf4,
    WeightFormat::Nvfp4,
    WeightFormat::Mxfp4,
    WeightFormat::AwqInt4,
    WeightFormat::Int4G32,
    WeightFormat::Int4G128,
    WeightFormat::Int4,
];

pub fn run(printer: &Printer, args: &QuantErrorArgs) -> Result<(), Failure> {
    let name = args.file.to_string_lossy();
    if !args.file.exists() && models().get(&name).is_ok() {
        return Err(Failure::usage(format!("{name} is the name of a model, whose weights are not here"))
            .with_hint("give the path of its .gguf or .safetensors file"));
    }
    let file = TensorFile::open(&args.file).map_err(|error| unreadable(&args.file, &error))?;
    let mut formats = input::named(&args.formats, &WeightFormat::ALL);
    if formats.is_empty() {
        formats = USUAL.to_vec();
    }
    let survey = Survey::of(&file, &formats, args.max_elements, printer)
        .map_err(|error| unreadable(&args.file, &error))?;
    if survey.tensors == 0 {
        return Err(Failure::wrong_file(
            format!("{} has no weights to try formats on: {}", args.file.display(), survey.apart_in_words()),
            "give a model's own .gguf or .safetensors file, with its layers",
        ));
    }
    match printer.format {
        Format::Human => printer.text(&survey.table(&args.file.display().to_string())),
        _ => printer.value("quant_error", &survey.json(&args.file.display().to_string())),
    }
}

fn unreadable(path: &Path, error: &TensorError) -> Failure {
    match error {
        // Hints of other commands take what has no weights too.
        TensorError::Model(error) if error.hint().contains("config.json") || is_other(path) => {
            Failure::of_file(error, "give a .gguf or .safetensors file with weights of 16 or 32 bits")
        }
        TensorError::Model(error) => Failure::of_file(error, error.hint()),
        error => Failure::wrong_file(format!("{} {error}", path.display()), error.hint()),
    }
}

/// Whether a file that is here is not called as one with weights.
fn is_other(path: &Path) -> bool {
    path.is_file() && path.extension().is_none_or(|end| end != "gguf" && end != "safetensors")
}

/// One format over all tensors.
struct Row {
    format: WeightFormat,
    error: ModelError,
    tensors: u64,
    /// Name and relative error.
    worst: Option<(String, f64)>,
    /// How many tensors were refused, and the first refusal.
    refused: u64,
    reason: Option<String>,
}

/// What was found in a file.
struct Survey {
    kind: &'static str,
    /// By their error, the least first.
    rows: Vec<Row>,
    tensors: u64,
    elements: u64,
    used: u64,
    stored: BTreeMap<String, u64>,
    /// Tensors that are no weights to be packed, by the reason.
    apart: Vec<(String, Vec<u64>, String)>,
}

impl Survey {
    fn of(
        file: &TensorFile,
        formats: &[WeightFormat],
        budget: u64,
        printer: &Printer,
    ) -> Result<Self, TensorError> {
        let row = |format: &WeightFormat| Row {
            format: *format,
            error: ModelError::default(),
            tensors: 0,
            worst: None,
            refused: 0,
            reason: None,
        };
        let mut survey = Self {
            kind: file.kind,
            rows: formats.iter().map(row).collect(),
            tensors: 0,
            elements: 0,
            used: 0,
            stored: BTreeMap::new(),
            apart: Vec::new(),
        };
        let (weights, rest): (Vec<_>, Vec<_>) = file.tensors.iter().partition(|t| set_apart(t).is_none());
        for tensor in rest {
            survey.set_apart(tensor, set_apart(tensor).unwrap_or_default());
        }
        let total: u64 = weights.iter().fold(0, |sum, tensor| sum.saturating_add(elements(tensor)));
        let bytes = weights.iter().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.bytes));
        let working = Working::new(printer, Counted::Bytes(bytes), "");
        for tensor in weights {
            working.say(&tensor.name);
            let (all_rows, columns) = tensors::sizes(tensor);
            // A tensor's share of the budget, and always a row.
            let share = u128::from(budget) * u128::from(elements(tensor)) / u128::from(total.max(1));
            let share = u64::try_from(share).unwrap_or(u64::MAX).min(MAX_HELD);
            let rows = (share / columns).max(1).min(all_rows);
            if columns > MAX_HELD || survey.used.saturating_add(columns) > budget.max(columns) {
                survey.set_apart(tensor, "beyond --max-elements".to_owned());
                continue;
            }
            let sample = file.rows(tensor, rows)?;
            survey.add(tensor, rows, &sample);
            working.advance(tensor.bytes);
        }
        let rms = |row: &Row| row.error.relative_rms().unwrap_or(f64::INFINITY);
        survey.rows.sort_by(|a, b| rms(a).total_cmp(&rms(b)));
        Ok(survey)
    }

    fn set_apart(&mut self, tensor: &Tensor, reason: String) {
        self.apart.push((tensor.name.clone(), tensor.shape.clone(), reason));
    }

    fn add(&mut self, tensor: &Tensor, rows: u64, sample: &[f32]) {
        if let Some(at) = sample.iter().position(|weight| !weight.is_finite()) {
            let count = sample.iter().filter(|weight| !weight.is_finite()).count();
            return self.set_apart(
                tensor,
                format!(
                    "{count} of {} weights read are NaN or infinite, the first is {}",
                    sample.len(),
                    sample[at]
                ),
            );
        }
        self.tensors += 1;
        self.elements = self.elements.saturating_add(elements(tensor));
        self.used += sample.len() as u64;
        *self.stored.entry(tensor.block.key().to_owned()).or_default() += 1;
        // A sample fits into memory, and so do its sizes.
        let (rows, columns) = (rows as usize, tensors::sizes(tensor).1 as usize);
        for row in &mut self.rows {
            row.add(tensor, quantise::quant_error(row.format, rows, columns, sample));
        }
    }

    fn apart_in_words(&self) -> String {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, _, reason) in &self.apart {
            *counts.entry(reason).or_default() += 1;
        }
        let words: Vec<_> = counts
            .iter()
            .take(8)
            .map(|(reason, count)| format!("{count} {}, {reason}", plural(*count)))
            .collect();
        if words.is_empty() { "it has no tensors".to_owned() } else { words.join("; ") }
    }

    /// Whether the weights had been packed before.
    fn is_dequantised(&self) -> bool {
        self.stored.keys().any(|name| !matches!(name.as_str(), "fp32" | "fp16" | "bf16" | "fp64"))
    }

    fn table(&self, name: &str) -> String {
        let stored: Vec<_> = self.stored.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let mut text = format!(
            "{name} ({}): {} {} ({}), {} of {} weights used\n",
            self.kind,
            self.tensors,
            plural(self.tensors),
            stored.join(", "),
            self.used,
            self.elements
        );
        if self.is_dequantised() {
            text.push_str("  the file is already quantised: errors are against its dequantised values\n");
        }
        if !self.apart.is_empty() {
            text.push_str(&format!("  apart: {}\n", self.apart_in_words()));
        }
        text.push('\n');
        let mut table = Table::new(&[
            "format",
            ">bits/weight",
            ">SNR dB",
            ">relative RMS",
            ">perplexity",
            ">largest",
            "worst tensor",
        ]);
        for row in &self.rows {
            table.row(row.cells());
        }
        text.push_str(&table.render());
        for row in &self.rows {
            if let Some(reason) = &row.reason {
                text.push_str(&format!("  {}: {} refused: {reason}\n", row.format, row.refused));
            }
        }
        for row in &self.rows {
            if let Some(note) = note(row.format) {
                text.push_str(&format!("  {}: {note}\n", row.format));
            }
        }
        text
    }

    fn json(&self, name: &str) -> Value {
        let apart = self
            .apart
            .iter()
            .map(|(name, shape, reason)| json!({ "name": name, "shape": shape, "reason": reason }));
        json!({
            "file": name,
            "kind": self.kind,
            "tensors": self.tensors,
            "elements": self.elements,
            "elements_used": self.used,
            "stored_as": self.stored,
            "dequantised": self.is_dequantised(),
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "apart": apart.collect::<Vec<_>>(),
        })
    }
}

impl Row {
    fn add(&mut self, tensor: &Tensor, error: Result<quantise::QuantError, Refusal>) {
        match error {
            Ok(error) => {
                self.tensors += 1;
                self.error.add(elements(tensor), &error);
                if let Some(rms) = error.relative_rms()
                    && self.worst.as_ref().is_none_or(|(_, worst)| rms > *worst)
                {
                    self.worst = Some((tensor.name.clone(), rms));
                }
            }
            Err(refusal) => {
                self.refused += 1;
                self.reason.get_or_insert_with(|| refusal.to_string());
            }
        }
    }

    fn cells(&self) -> Vec<String> {
        let percent = |value: Option<f64>| {
            value.map_or("-".to_owned(), |value| format!("{} %", significant(value * 100.0)))
        };
        let (rms, snr) = (self.error.relative_rms(), self.error.snr_db());
        let snr = match (rms, snr) {
            (_, Some(snr)) => significant(snr),
            (Some(_), None) => "exact".to_owned(),
            _ => "-".to_owned(),
        };
        let worst = self.worst.as_ref().filter(|(_, rms)| *rms > 0.0).map(|(name, rms)| {
            let short: String = words::printable(name).chars().take(40).collect();
            format!("{short} ({} dB)", significant(-20.0 * rms.log10()))
        });
        vec![
            self.format.to_string(),
            words::bits(self.format.bits_per_weight()),
            snr,
            percent(rms),
            rms.map_or("-".to_owned(), |rms| format!("{:+.2} %", quantise::quality_loss(rms) * 100.0)),
            percent(self.error.max_relative()),
            worst.unwrap_or_default(),
        ]
    }

    fn json(&self) -> Value {
        let worst = self.worst.as_ref().map(|(name, rms)| {
            let snr = (*rms > 0.0).then(|| -20.0 * rms.log10());
            json!({ "name": name, "snr_db": snr, "relative_rms_ratio": rms })
        });
        json!({
            "format": self.format.key(),
            "bits_per_weight": self.format.bits_per_weight(),
            "snr_db": self.error.snr_db(),
            "relative_rms_ratio": self.error.relative_rms(),
            "quality_loss_ratio": self.error.relative_rms().map(quantise::quality_loss),
            "max_relative_ratio": self.error.max_relative(),
            "tensors": self.tensors,
            "worst": worst,
            "tensors_refused": self.refused,
            "reason": self.reason,
            "implemented": without_encoder(self.format).is_none(),
            "note": note(self.format),
        })
    }
}

/// What a reader of the number must know.
fn note(format: WeightFormat) -> Option<&'static str> {
    use WeightFormat as F;
    match format {
        F::Q3KM | F::Q4KS | F::Q4KM | F::Q5KS | F::Q5KM => {
            Some("every tensor in the mix's main block type; the mix stores some in a larger one")
        }
        F::AwqInt4 | F::GptqInt4 => {
            Some("rounded to nearest; the method itself looks at activations and does better")
        }
        _ => None,
    }
}

/// Weights of a tensor whose product has been checked with its header.
fn elements(tensor: &Tensor) -> u64 {
    tensor.elements().unwrap_or(0)
}

/// Why a tensor is not tried; `None` where it is.
fn set_apart(tensor: &Tensor) -> Option<String> {
    let name = tensor.name.to_ascii_lowercase();
    let is_experts = name.contains("exps") || name.contains("experts");
    let is_embedding = ["embd", "embed", "wte", "wpe"].iter().any(|part| name.contains(part));
    match tensor.shape.len() {
        _ if elements(tensor) == 0 => Some("empty".to_owned()),
        _ if !is_readable(tensor.block) => Some(format!("stored as {}, which is not read", tensor.block)),
        2 if is_embedding => Some("an embedding".to_owned()),
        2 => None,
        3 if is_experts => None,
        dimensions => {
            Some(format!("of {dimensions} {}", if dimensions == 1 { "dimension" } else { "dimensions" }))
        }
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "tensor" } else { "tensors" }
}
