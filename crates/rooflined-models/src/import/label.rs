//! Check of a file's name against its content.

use crate::block::Block;
use crate::class::Class;
use crate::model::{Model, WeightGroup};
use crate::recipe::{Mix, Recipe};

/// Bits per weight may differ from the recipe's by this ratio before a warning says so.
const TOLERANCE: f64 = 0.05;

/// Weights that a label speaks of: what a step reads, without vectors.
fn is_labelled(group: &WeightGroup) -> bool {
    // Scales stand apart and hold no weights; the bytes are those of the weights they scale.
    (group.rows > 1 || group.parameters == 0)
        && !matches!(
            group.class,
            Class::Embedding | Class::Tower | Class::Draft | Class::Norm | Class::Router | Class::Other
        )
}

/// Bits per weight of what the label speaks of.
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no last digit")]
fn bits(groups: &[WeightGroup]) -> Option<f64> {
    let (mut bytes, mut parameters) = (0.0, 0.0);
    for group in groups.iter().filter(|group| is_labelled(group)) {
        bytes += group.bytes as f64;
        parameters += group.parameters as f64;
    }
    (parameters > 0.0).then(|| bytes * 8.0 / parameters)
}

/// The storage of most weights of the layers, and its share.
#[expect(clippy::cast_precision_loss, reason = "a share needs no last digit")]
pub(super) fn main_block(groups: &[WeightGroup]) -> Option<(Block, f64)> {
    let layers = groups.iter().filter(|group| is_labelled(group) && group.class != Class::Head);
    let mut totals: Vec<(Block, u64)> = Vec::new();
    for group in layers {
        match totals.iter_mut().find(|(block, _)| *block == group.block) {
            Some((_, total)) => *total = total.saturating_add(group.parameters),
            None => totals.push((group.block, group.parameters)),
        }
    }
    let all: f64 = totals.iter().map(|(_, total)| *total as f64).sum();
    let most = totals.into_iter().max_by_key(|(_, total)| *total)?;
    (all > 0.0).then(|| (most.0, most.1 as f64 / all))
}

/// Warns where a GGUF file is not what its label or its name says.
pub(super) fn check_gguf(model: &mut Model, mix: Option<Mix>, file: &str) {
    let named = in_name(file);
    if let (Some(mix), Some(named)) = (mix, named)
        && mix != named
    {
        model.warnings.push(format!("the file is named {} and labelled {}", named.key(), mix.key()));
    }
    if let Some(mix) = mix.or(named) {
        let expected = Recipe::Gguf(mix).weights(&model.architecture);
        compare(model, &format!("labelled {}, which would be", mix.key()), &expected);
    }
}

/// Warns where bits per weight are not those expected of what is `said`.
pub(super) fn compare(model: &mut Model, said: &str, expected: &[WeightGroup]) {
    let (Some(found_bits), Some(expected_bits)) = (bits(&model.weights), bits(expected)) else { return };
    let Some((found, share)) = main_block(&model.weights) else { return };
    let ratio = found_bits / expected_bits - 1.0;
    if ratio.abs() <= TOLERANCE {
        return;
    }
    model.warnings.push(format!(
        "{said} {expected_bits:.2} bits per weight read; it holds {found_bits:.2}, and {:.0} % of the layers' weights are {found}",
        share * 100.0
    ));
}

/// The mix that a file's name ends in or carries between separators.
fn in_name(file: &str) -> Option<Mix> {
    let file = file.to_ascii_lowercase();
    let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
    let carries = |key: &str| {
        file.match_indices(key).any(|(at, _)| {
            is_edge(file[..at].chars().next_back()) && is_edge(file[at + key.len()..].chars().next())
        })
    };
    let names = |mix: &Mix| match mix {
        Mix::F16 => carries("f16") || carries("fp16"),
        Mix::F32 => carries("f32") || carries("fp32"),
        mix => carries(mix.key()),
    };
    Mix::ALL.iter().copied().filter(names).max_by_key(|mix| mix.key().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::config::Config;

    #[test]
    fn a_mix_is_found_in_a_name_only_between_separators() {
        assert_eq!(in_name("Llama-3-8B.Q4_K_M.gguf"), Some(Mix::Q4KM));
        assert_eq!(in_name("llama-3-8b-q4_k_m-00001-of-00002.gguf"), Some(Mix::Q4KM));
        assert_eq!(in_name("x-f16.gguf"), Some(Mix::F16));
        assert_eq!(in_name("x-iq2_xs.gguf"), Some(Mix::Iq2Xs));
        assert_eq!(in_name("bf16x-llama.gguf"), None);
        assert_eq!(in_name("qwen2.gguf"), None);
    }

    /// Tools keep the same bits in ways that no block of a configuration is: MLX a scale and a bias for 64 weights, torchao a scale for
    /// every output.
    #[test]
    fn the_same_bits_in_another_block_are_as_described() {
        let json = br#"{"model_type": "llama", "quantization": {"group_size": 32, "bits": 4}}"#;
        let mut model = Config::parse(json).unwrap().model(None, "x").unwrap();
        let expected = model.weights.clone();
        for group in &mut model.weights {
            group.block = if group.block.is_plain() { group.block } else { Block::Mxfp8 };
        }
        assert_ne!(main_block(&model.weights), main_block(&expected));
        compare(&mut model, "", &expected);
        assert_eq!(model.warnings, Vec::<String>::new());
    }
}
