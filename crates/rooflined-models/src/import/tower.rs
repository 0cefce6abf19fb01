//! The towers that `vision_config` and `audio_config` of a `config.json` describe: memory that a server takes beside the text
//! model.
//!
//! A transformer over patches or frames: four projections of the width in every layer, two matrices of the feed-forward (three
//! with a gate), the embedding of patches and of their places, and what merges patches where its sizes are given.

use serde_json::Value;

use super::fields::Fields;
use crate::block::Block;
use crate::class::Class;
use crate::model::{Grouping, WeightGroup};

/// Most layers, and most of a width, of a tower that is believed.
const MOST_LAYERS: u64 = 1 << 10;
const MOST_WIDTH: u64 = 1 << 20;

/// Towers for pictures with a gated feed-forward, by their own or their model's `model_type`.
const GATED: &[&str] = &["qwen2_5_vl", "qwen2_5_omni", "pixtral", "mistral3"];

/// What the class of a tower (transformers, `configuration_*.py`) has where a file leaves it out: layers, width, inner width, and
/// sides of a picture and of a patch in pixels.
const DEFAULTS: &[(&str, [u64; 5])] = &[
    ("blip_2_qformer", [12, 768, 3072, 0, 1]),
    ("blip_2_vision_model", [39, 1408, 6144, 224, 14]),
    ("clip_vision_model", [12, 768, 3072, 224, 32]),
    ("idefics2_vision", [12, 768, 3072, 224, 32]),
    ("idefics3", [12, 1152, 3072, 224, 32]),
    ("idefics3_vision", [12, 1152, 3072, 224, 32]),
    ("pixtral", [24, 1024, 4096, 1024, 16]),
    ("siglip_vision_model", [12, 768, 3072, 224, 16]),
    ("smolvlm_vision", [12, 1152, 3072, 224, 32]),
];

/// Dimensions of a tower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tower {
    layers: u64,
    hidden: u64,
    intermediate: u64,
    /// Inputs of one patch: its pixels in every colour; of sound, of the two convolutions before the layers.
    patch: u64,
    /// Places with an embedding of their own; 0 where they are rotated in instead.
    places: u64,
    gated: bool,
    /// Mergers of patches in front of the text model, the width of what each merges, and of what it gives.
    mergers: [u64; 3],
    /// Rows and columns of the two matrices that join it to the text model.
    joint: [[u64; 2]; 2],
}

impl Tower {
    /// The towers of the configuration, each with what joins it to a text model of that width, and whether there is one of
    /// which it does not give the sizes.
    pub(super) fn read(outer: &Fields<'_>, width: u64) -> (Vec<Self>, bool) {
        let parts = outer.inner(&["thinker_config"]);
        let parts = parts.as_ref().unwrap_or(outer);
        let family = outer.text(&["model_type"]).unwrap_or_default();
        let mut towers = Vec::new();
        // Some only name the tower, or say how wide it is.
        let mut is_unread = outer.any(&["mm_vision_tower", "mm_audio_tower"]).is_some();
        for key in ["vision_config", "audio_config", "qformer_config"] {
            let Some(fields) = parts.inner(&[key]).filter(|fields| !fields.map.is_empty()) else { continue };
            match Self::of(&fields, key == "vision_config", family) {
                Some(mut tower) => {
                    if key == "vision_config" {
                        tower.joint = joint(family, outer, tower.hidden, width);
                    }
                    towers.push(tower);
                }
                None => is_unread = true,
            }
        }
        (towers, is_unread)
    }

    fn of(fields: &Fields<'_>, sees: bool, family: &str) -> Option<Self> {
        let own = fields.text(&["model_type"]).unwrap_or_default();
        let defaults = DEFAULTS.iter().find(|(name, _)| *name == own).map(|(_, sizes)| sizes);
        let default = |place: usize| defaults.and_then(|sizes| sizes.get(place)).copied();
        // Sides of pictures may be a height and a width.
        let number = |names: &[&str]| match fields.any(names) {
            Some(Value::Array(sides)) => sides.first().and_then(Value::as_u64),
            _ => fields.number(names).ok().flatten(),
        };
        let layers = number(&["num_hidden_layers", "depth", "num_layers", "encoder_layers", "layers"]);
        let layers = layers.or_else(|| default(0))?;
        // Qwen2-VL calls the width of its output hidden_size.
        let hidden = number(&["embed_dim", "d_model"]).or_else(|| number(&["hidden_size", "width"]));
        let hidden = hidden.or_else(|| default(1))?;
        // A layer without queries of its own pools the patches; Llama 3.2 has layers that see all tiles.
        let pooling = u64::from(fields.flag(&["vision_use_head"]) == Some(true));
        let layers = layers.saturating_add(number(&["num_global_layers"]).unwrap_or(pooling));
        let believed = (1..=MOST_LAYERS).contains(&layers) && (1..=MOST_WIDTH).contains(&hidden);
        if !believed {
            return None;
        }
        let bounded = |value: Option<u64>, usual: u64| value.unwrap_or(usual).min(MOST_WIDTH);
        let ratio = bounded(number(&["mlp_ratio"]), 4).min(64);
        let inner = number(&["intermediate_size", "mlp_dim", "encoder_ffn_dim"]).or_else(|| default(2));
        let side = number(&["patch_size", "spatial_patch_size"]).or_else(|| default(4));
        let side = bounded(side, 14).clamp(1, 1 << 10);
        let colours = bounded(number(&["num_channels", "in_channels", "in_chans"]), 3).min(64);
        let images = bounded(number(&["temporal_patch_size"]), 1).clamp(1, 64);
        let size = number(&["image_size"]).or_else(|| default(3)).filter(|_| own != "pixtral");
        let across = size.map_or(0, |size| size.min(MOST_WIDTH) / side);
        let merged = bounded(number(&["spatial_merge_size"]), 0).min(64);
        let given = bounded(number(&["out_hidden_size"]), 0);
        let deep = fields.list(&["deepstack_visual_indexes"]).map_or(0, |list| list.len().min(64) as u64);
        // Whisper hears through two convolutions of three taps.
        let mels = bounded(number(&["num_mel_bins"]), 0);
        let heard = 3 * (hidden + mels);
        Some(Self {
            layers,
            hidden,
            intermediate: bounded(inner, hidden.saturating_mul(ratio)),
            patch: if mels > 0 { heard } else { side * side * colours * images },
            places: match number(&["max_source_positions"]) {
                Some(places) => places.min(MOST_WIDTH),
                None => across.saturating_mul(across).min(MOST_WIDTH),
            },
            gated: sees && (GATED.contains(&family) || GATED.contains(&own)),
            joint: [[0; 2]; 2],
            mergers: if given > 0 {
                [1 + deep, hidden.saturating_mul(merged * merged).min(MOST_WIDTH), given]
            } else {
                [0; 3]
            },
        })
    }

    /// Its matrices, stored as `block`.
    pub(super) fn weights(&self, block: Block) -> Vec<WeightGroup> {
        let of_layers = |each: u64| each * self.layers;
        let wide = if self.gated { 3 } else { 2 };
        let [mergers, merged, given] = self.mergers;
        let [first, second] = self.joint;
        let mut groups = Grouping::default();
        for (matrices, rows, columns) in [
            (of_layers(4), self.hidden, self.hidden),
            (of_layers(wide), self.intermediate, self.hidden),
            (1, self.hidden, self.patch),
            (u64::from(self.places > 0), self.places, self.hidden),
            (mergers, merged, merged),
            (mergers, given, merged),
            (1, first[0], first[1]),
            (1, second[0], second[1]),
        ] {
            let bytes = block.size(rows, columns).and_then(|bytes| bytes.checked_mul(matrices));
            let parameters = rows.checked_mul(columns).and_then(|each| each.checked_mul(matrices));
            // Widths are bounded above, so neither product wraps; if one did the group would be left out.
            if let (Some(bytes), Some(parameters), true) = (bytes, parameters, matrices > 0 && rows > 0) {
                let _ = groups.add(Class::Tower, block, (rows, columns), matrices, parameters, bytes);
            }
        }
        groups.finish()
    }
}

/// What transformers' classes put between a tower of the width `seen` and a text model of the width `text`.
fn joint(family: &str, outer: &Fields<'_>, seen: u64, text: u64) -> [[u64; 2]; 2] {
    let number = |name, usual: u64| outer.number(&[name]).ok().flatten().unwrap_or(usual).min(MOST_WIDTH);
    let squared = |side: u64| seen.saturating_mul(side.saturating_mul(side)).min(MOST_WIDTH);
    match family {
        "llava" | "llava_next" | "llava_next_video" | "llava_onevision" | "vipllava" | "mistral3" => {
            [[text, seen], [text, text]]
        }
        "paligemma" => [[text, seen], [0; 2]],
        "idefics3" | "smolvlm" => [[text, squared(number("scale_factor", 2))], [0; 2]],
        "internvl" => [[text, squared(2)], [text, text]],
        "aya_vision" => {
            let inner = number("alignment_intermediate_size", 28672);
            [[inner, squared(number("downsample_factor", 2))], [text, inner / 2]]
        }
        _ => [[0; 2]; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parameters(config: &Value) -> Option<u64> {
        let map = config.as_object().unwrap();
        let (towers, _) = Tower::read(&Fields { map }, 2048);
        let weights = towers.iter().flat_map(|tower| tower.weights(Block::Bf16));
        (!towers.is_empty()).then(|| weights.map(|group| group.parameters).sum())
    }

    /// 417 million by Gemma 3's technical report, some 670 by Qwen2.5-VL's with what connects it.
    #[test]
    fn towers_have_the_weights_that_their_reports_tell() {
        let gemma = json!({"model_type": "gemma3", "vision_config": {"hidden_size": 1152, "image_size": 896,
            "intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14}});
        let found = parameters(&gemma).unwrap() as f64;
        assert!((found / 417e6 - 1.0).abs() < 0.005, "{found}");
        let qwen = json!({"model_type": "qwen2_5_vl", "vision_config": {"depth": 32, "hidden_size": 1280,
            "intermediate_size": 3420, "in_chans": 3, "spatial_patch_size": 14, "temporal_patch_size": 2}});
        let found = parameters(&qwen).unwrap() as f64;
        assert!((0.92..1.0).contains(&(found / 670e6)), "{found}");
    }

    #[test]
    fn what_says_too_little_or_too_much_is_not_counted() {
        assert_eq!(parameters(&json!({"model_type": "llama"})), None);
        assert_eq!(parameters(&json!({"vision_config": {"hidden_size": 1152}})), None);
        let hostile = json!({"vision_config": {"hidden_size": u64::MAX, "depth": u64::MAX}});
        assert_eq!(parameters(&hostile), None);
        let wide = json!({"vision_config": {"hidden_size": 1 << 20, "depth": 1024, "intermediate_size": u64::MAX,
            "image_size": u64::MAX, "patch_size": 1}});
        assert!(parameters(&wide).is_some());
    }
}
