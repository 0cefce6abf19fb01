//! Sizes of published files vs. those computed from architecture and recipe.
//!
//! Most sizes are those of the tensors, as llama.cpp prints them; others are those of files, which have a tokenizer on
//! top. Where a writer did something else than its label says, the cause stands beside the row, and no recipe is bent to
//! it.

use serde::Serialize;

use rooflined_models::class::Class;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;

/// Bytes of a tokenizer per entry of the vocabulary: a length (8), some seven letters, a kind (4), and a score (4) or one
/// to two merges of 16. Published tokenizers take 23 (Gemma) to 55 (Llama-3).
const TOKENIZER_BYTES: f64 = 32.0;

/// What a published size counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// The tensors, as llama.cpp prints them.
    Tensors,
    /// The file, its tokenizer included.
    File,
}

/// A file that somebody published, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PublishedSize {
    /// Key of the model in the registry.
    pub model: &'static str,
    /// The recipe by its name.
    pub recipe: &'static str,
    /// Size in GiB as it was printed, with as many digits.
    pub published_gib: &'static str,
    pub counted: Counted,
    /// Who published it.
    pub source: &'static str,
    /// Why the file is not what the recipe makes; `None` where it is.
    pub cause: Option<&'static str>,
}

/// One of them with what the recipe makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SizeRow {
    #[serde(flatten)]
    pub file: PublishedSize,
    /// Size by the recipe in GiB.
    pub computed_gib: f64,
    /// Computed over published, less one.
    pub error_ratio: f64,
    /// How far the published digits were rounded at most, as a ratio of the size.
    pub rounding_ratio: f64,
}

#[cfg(test)]
impl SizeRow {
    /// The error beyond what rounding the published digits explains.
    #[must_use]
    pub fn beyond_rounding(&self) -> f64 {
        (self.error_ratio.abs() - self.rounding_ratio).max(0.0)
    }
}

/// Every published size with its computed one, in the order of the table. Rows of models that the registry does not have
/// are left out; a test holds the table to having none.
#[must_use]
pub fn sizes() -> Vec<SizeRow> {
    PUBLISHED.iter().filter_map(row).collect()
}

fn row(file: &PublishedSize) -> Option<SizeRow> {
    let recipe: Recipe = file.recipe.parse().ok()?;
    let published: f64 = file.published_gib.parse().ok()?;
    let decimals = file.published_gib.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let digits = i32::try_from(decimals).ok()?;
    let known = models().get(file.model).ok()?;
    #[expect(clippy::cast_precision_loss, reason = "vocabularies are small")]
    let tokenizer = match file.counted {
        Counted::Tensors => 0.0,
        Counted::File => TOKENIZER_BYTES * known.architecture.vocab as f64,
    };
    // Towers have a file of their own.
    let model = known.model(recipe);
    let towers: u64 =
        model.weights.iter().filter(|group| group.class == Class::Tower).map(|group| group.bytes).sum();
    #[expect(clippy::cast_precision_loss, reason = "a size in bytes")]
    let computed_gib = (model.bytes().get() - towers as f64 + tokenizer) / f64::from(1 << 30);
    Some(SizeRow {
        file: *file,
        computed_gib,
        error_ratio: computed_gib / published - 1.0,
        rounding_ratio: 0.5 * 10f64.powi(-digits) / published,
    })
}

const fn tensors(
    model: &'static str,
    recipe: &'static str,
    published_gib: &'static str,
    source: &'static str,
) -> PublishedSize {
    PublishedSize { model, recipe, published_gib, counted: Counted::Tensors, source, cause: None }
}

const fn whole(
    model: &'static str,
    recipe: &'static str,
    published_gib: &'static str,
    source: &'static str,
) -> PublishedSize {
    PublishedSize { model, recipe, published_gib, counted: Counted::File, source, cause: None }
}

impl PublishedSize {
    /// The same row with the reason why no recipe makes it.
    const fn because(self, cause: &'static str) -> Self {
        Self { cause: Some(cause), ..self }
    }
}

/// llama.cpp's perplexity tables of Llama-3-8B; the importance matrix is that of the table.
const SCOREBOARD: &str = "llama.cpp: perplexity/README.md";
/// llama.cpp's table of Llama-3.1-8B, without an importance matrix.
const QUANTIZE: &str = "llama.cpp: quantize/README.md";
const XIONGJIE: &str = "XiongjieDai/GPU-Benchmarks-on-LLM-Inference";
const SPARK: &str = "llama.cpp: benches/dgx-spark";
const SMOLHUB: &str = "YuvrajSingh-mist/SmolHub-Website";
const DNEWCOME: &str = "dnewcome/jetson-llm";
const FORK: &str = "tables of llama.cpp's fork with one- and two-bit types";
const SMARTEST: &str = "SmartEst74/jetson-benchmarks";
const KIRKPATRICK: &str = "drwjkirkpatrick-web/jetson-llm-benchmark";

const PUBLISHED: &[PublishedSize] = &[
    tensors("llama-3-8b", "fp16", "14.97", SCOREBOARD),
    tensors("llama-3-8b", "q8_0", "7.96", SCOREBOARD),
    tensors("llama-3-8b", "q6_k", "6.14", SCOREBOARD),
    tensors("llama-3-8b", "q5_k_m", "5.33", SCOREBOARD),
    tensors("llama-3-8b", "q5_k_s", "5.21", SCOREBOARD),
    tensors("llama-3-8b", "q5_1", "5.65", SCOREBOARD),
    tensors("llama-3-8b", "q5_0", "5.21", SCOREBOARD),
    tensors("llama-3-8b", "q4_k_m", "4.58", SCOREBOARD),
    tensors("llama-3-8b", "q4_k_s", "4.37", SCOREBOARD),
    tensors("llama-3-8b", "iq4_nl", "4.35", SCOREBOARD),
    tensors("llama-3-8b", "iq4_xs", "4.14", SCOREBOARD),
    tensors("llama-3-8b", "q4_1", "4.78", SCOREBOARD),
    tensors("llama-3-8b", "q4_0", "4.34", SCOREBOARD),
    tensors("llama-3-8b", "q3_k_l", "4.03", SCOREBOARD),
    tensors("llama-3-8b", "q3_k_m", "3.74", SCOREBOARD),
    tensors("llama-3-8b", "q3_k_s", "3.41", SCOREBOARD),
    tensors("llama-3-8b", "iq3_m", "3.53", SCOREBOARD),
    tensors("llama-3-8b", "iq3_s", "3.42", SCOREBOARD),
    tensors("llama-3-8b", "iq3_xs", "3.28", SCOREBOARD),
    tensors("llama-3-8b", "iq3_xxs", "3.05", SCOREBOARD),
    tensors("llama-3-8b", "q2_k", "2.96", SCOREBOARD),
    tensors("llama-3-8b", "q2_k_s", "2.96", SCOREBOARD)
        .because("the table repeats the size of Q2_K; llama.cpp's other table says 2.78"),
    tensors("llama-3-8b", "iq2_m", "2.74", SCOREBOARD),
    tensors("llama-3-8b", "iq2_s", "2.56", SCOREBOARD),
    tensors("llama-3-8b", "iq2_xs", "2.43", SCOREBOARD),
    tensors("llama-3-8b", "iq2_xxs", "2.24", SCOREBOARD),
    tensors("llama-3-8b", "iq1_m", "2.01", SCOREBOARD),
    tensors("llama-3-8b", "iq1_s", "1.88", SCOREBOARD),
    tensors("llama-3.1-8b", "q2_k_s", "2.78", QUANTIZE),
    tensors("llama-3.1-8b", "iq4_nl", "4.38", QUANTIZE),
    tensors("llama-3.1-8b", "iq4_xs", "4.17", QUANTIZE),
    tensors("llama-3.1-8b", "iq3_xxs", "3.04", QUANTIZE),
    tensors("llama-3.1-8b", "q3_k_l", "4.02", QUANTIZE),
    tensors("llama-3-8b", "q4_k_m", "4.58", XIONGJIE),
    tensors("llama-3-8b", "fp16", "14.96", XIONGJIE),
    tensors("llama-3-70b", "q4_k_m", "39.59", XIONGJIE),
    tensors("llama-3-70b", "q2_k", "24.56", XIONGJIE),
    tensors("llama-3-70b", "iq4_xs", "35.30", XIONGJIE),
    tensors("llama-3-70b", "iq4_nl", "37.30", XIONGJIE),
    tensors("llama-3-70b", "q4_k_s", "37.58", XIONGJIE),
    tensors("llama-3-70b", "q4_k_m", "39.60", XIONGJIE),
    tensors("llama-3-70b", "q5_k_m", "46.52", XIONGJIE),
    tensors("llama-3-70b", "q6_k", "53.91", XIONGJIE),
    tensors("llama-3-70b", "q8_0", "69.83", XIONGJIE),
    tensors("llama-2-70b", "q4_0", "36.20", SCOREBOARD),
    tensors("llama-2-70b", "q4_1", "40.20", SCOREBOARD),
    tensors("llama-2-70b", "q5_0", "44.20", SCOREBOARD),
    tensors("llama-2-70b", "q2_k", "27.27", SCOREBOARD).because("of 2023, when Q2_K was a larger mix"),
    tensors("llama-2-70b", "q3_k_s", "27.86", SCOREBOARD),
    tensors("llama-2-70b", "q3_k_m", "30.83", SCOREBOARD),
    tensors("llama-2-70b", "q3_k_l", "33.67", SCOREBOARD),
    tensors("llama-2-70b", "q4_k_s", "36.39", SCOREBOARD),
    tensors("llama-2-70b", "q4_k_m", "38.54", SCOREBOARD),
    tensors("llama-2-70b", "q5_k_s", "44.20", SCOREBOARD),
    tensors("llama-2-70b", "q5_k_m", "45.41", SCOREBOARD),
    tensors("llama-2-70b", "q6_k", "52.70", SCOREBOARD),
    tensors("llama-2-70b", "fp16", "128.5", SCOREBOARD),
    tensors("gpt-oss-20b", "mxfp4_moe", "11.27", SPARK),
    tensors("gpt-oss-120b", "mxfp4_moe", "59.02", SPARK),
    tensors("qwen3-30b-a3b", "q8_0", "30.25", SPARK),
    tensors("qwen2.5-7b", "q8_0", "7.54", SPARK),
    tensors("gemma-3-4b", "q4_0", "2.35", SPARK)
        .because("trained for Q4_0: its table is Q8_0 instead of Q6_K"),
    whole("gemma-3-1b", "q4_k_m", "0.751", SMOLHUB),
    whole("gemma-3-1b", "q4_k_m", "0.76", KIRKPATRICK),
    whole("lfm2.5-1.2b", "q4_k_m", "0.682", SMOLHUB),
    whole("lfm2.5-350m", "q4_k_m", "0.214", SMOLHUB),
    whole("llama-3.2-1b", "q4_k_m", "0.753", SMOLHUB),
    whole("smollm2-135m", "q4_k_m", "0.099", SMOLHUB),
    whole("qwen3-1.7b", "q1_0", "0.231", SMOLHUB),
    tensors("qwen3-4b", "q1_0", "0.527", FORK),
    tensors("qwen3-4b", "q2_0", "0.996", FORK),
    tensors("qwen3-8b", "q2_0", "2.03", SMARTEST),
    tensors("qwen3-8b", "q5_k_m", "5.5", SMARTEST),
    tensors("qwen3.5-4b", "q8_0", "4.2", SMARTEST),
    tensors("qwen3.5-4b", "q8_0", "4.3", DNEWCOME)
        .because("the file keeps a layer that drafts tokens, 0.11 GiB"),
    tensors("qwen3-8b", "q4_k_m", "4.7", DNEWCOME),
    tensors("qwen2.5-32b", "q4_k_m", "18.5", DNEWCOME),
    tensors("qwen2.5-7b", "q6_k", "5.8", DNEWCOME),
    tensors("qwen3.5-27b", "q4_k_m", "16.7", DNEWCOME).because(
        "not known: a drafting layer is 0.3 GiB of the 1.3, the rest may be a mix of the writer's own",
    ),
    tensors("llama-3.2-3b", "q4_k_m", "1.9", DNEWCOME),
    tensors("llama-3.2-3b", "q4_k_m", "1.87", KIRKPATRICK),
    tensors("qwen2.5-7b", "q2_k", "2.8", KIRKPATRICK),
    tensors("nemotron-3-nano-30b-a3b", "iq3_xxs", "16.9", DNEWCOME),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_model_and_a_recipe_that_are_known() {
        assert_eq!(sizes().len(), PUBLISHED.len());
    }

    /// What rounding the published digits explains is no error of a rule.
    #[test]
    fn recipes_give_the_published_sizes_or_the_cause_is_named() {
        let rows = sizes();
        let (with_cause, by_rule): (Vec<&SizeRow>, Vec<&SizeRow>) =
            rows.iter().partition(|row| row.file.cause.is_some());
        for row in &by_rule {
            assert!(row.beyond_rounding() <= 0.0125, "{row:?}");
        }
        for row in &with_cause {
            assert!(row.beyond_rounding() > 0.0125, "the rule makes it after all: {row:?}");
        }
        // Sizes with three digits: the rules themselves, not the rounding.
        let mut errors: Vec<_> = by_rule
            .iter()
            .filter(|row| row.rounding_ratio < 0.0025)
            .map(|row| row.error_ratio.abs())
            .collect();
        errors.sort_by(f64::total_cmp);
        let median = errors[errors.len() / 2];
        println!(
            "{} rows, median {:.3} %, worst {:.2} %",
            errors.len(),
            median * 100.0,
            errors[errors.len() - 1] * 100.0
        );
        assert!(errors.len() >= 55 && median <= 0.0015);
    }

    #[test]
    fn a_cause_that_can_be_counted_explains_its_row() {
        let gib = |file: &str, recipe: &str| {
            sizes().into_iter().find(|row| row.file.model == file && row.file.recipe == recipe).unwrap()
        };
        let row = gib("gemma-3-4b", "q4_0");
        let known = &models().get("gemma-3-4b").unwrap().architecture;
        let table = known.vocab as f64 * known.hidden as f64;
        let explained = row.computed_gib + table * (8.5 - 6.5625) / 8.0 / f64::from(1 << 30);
        assert!((explained / 2.35 - 1.0).abs() < 0.005, "{explained}");
    }
}
