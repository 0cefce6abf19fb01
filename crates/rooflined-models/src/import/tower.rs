//! The towers that `vision_config` and `audio_config` of a `config.json` describe: memory that a server takes beside the text
//! model.
//!
//! A transformer over patches or frames: four projections of the width in every layer, two matrices of the feed-forward (three
//! with a gate), the embedding of patches and of their places, and what merges patches where its sizes are given.

use super::ImportError;
use super::fields::Fields;
use crate::block::Block;
use crate::class::Class;
use crate::model::{Grouping, WeightGroup};

/// Most layers, and most of a width, of a tower that is believed.
const MOST_LAYERS: u64 = 1 << 10;
const MOST_WIDTH: u64 = 1 << 20;

/// Families whose tower for pictures has a gated feed-forward.
const GATED: &[&str] = &["qwen2_5_vl", "qwen2_5_omni", "pixtral", "mistral3"];

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
}

impl Tower {
    /// What the configuration says of its towers; those of which it says too little are left out.
    ///
    /// # Errors
    /// A field is no number.
    pub(super) fn read(outer: &Fields<'_>) -> Result<Vec<Self>, ImportError> {
        let parts = outer.inner(&["thinker_config"]);
        let parts = parts.as_ref().unwrap_or(outer);
        let family = outer.text(&["model_type"]).unwrap_or_default();
        let mut towers = Vec::new();
        for key in ["vision_config", "audio_config"] {
            if let Some(fields) = parts.inner(&[key]) {
                towers.extend(Self::of(&fields, key == "vision_config" && GATED.contains(&family))?);
            }
        }
        Ok(towers)
    }

    fn of(fields: &Fields<'_>, gated: bool) -> Result<Option<Self>, ImportError> {
        let layers =
            fields.number(&["num_hidden_layers", "depth", "num_layers", "encoder_layers", "layers"])?;
        // Qwen2-VL calls the width of its output hidden_size.
        let hidden = match fields.number(&["embed_dim", "d_model"])? {
            Some(width) => Some(width),
            None => fields.number(&["hidden_size", "width"])?,
        };
        let (Some(layers), Some(hidden)) = (layers, hidden) else { return Ok(None) };
        // A layer without queries of its own pools the patches; Llama 3.2 has layers that see all tiles.
        let pooling = u64::from(fields.flag(&["vision_use_head"]) == Some(true));
        let layers = layers.saturating_add(fields.number(&["num_global_layers"])?.unwrap_or(pooling));
        let believed = (1..=MOST_LAYERS).contains(&layers) && (1..=MOST_WIDTH).contains(&hidden);
        if !believed {
            return Ok(None);
        }
        let bounded = |value: Option<u64>, usual: u64| value.unwrap_or(usual).min(MOST_WIDTH);
        let ratio = bounded(fields.number(&["mlp_ratio"]).unwrap_or(None), 4).min(64);
        let inner = fields.number(&["intermediate_size", "mlp_dim", "encoder_ffn_dim"])?;
        let side = bounded(fields.number(&["patch_size", "spatial_patch_size"])?, 14).clamp(1, 1 << 10);
        let colours = bounded(fields.number(&["num_channels", "in_channels", "in_chans"])?, 3).min(64);
        let images = bounded(fields.number(&["temporal_patch_size"])?, 1).clamp(1, 64);
        let across = fields.number(&["image_size"])?.map_or(0, |size| size.min(MOST_WIDTH) / side);
        let merged = bounded(fields.number(&["spatial_merge_size"])?, 0).min(64);
        let given = bounded(fields.number(&["out_hidden_size"])?, 0);
        let deep = fields.list(&["deepstack_visual_indexes"]).map_or(0, |list| list.len().min(64) as u64);
        // Whisper hears through two convolutions of three taps.
        let mels = bounded(fields.number(&["num_mel_bins"])?, 0);
        let heard = 3 * (hidden + mels);
        Ok(Some(Self {
            layers,
            hidden,
            intermediate: bounded(inner, hidden.saturating_mul(ratio)),
            patch: if mels > 0 { heard } else { side * side * colours * images },
            places: match fields.number(&["max_source_positions"])? {
                Some(places) => places.min(MOST_WIDTH),
                None => across.saturating_mul(across).min(MOST_WIDTH),
            },
            gated,
            mergers: if given > 0 {
                [1 + deep, hidden.saturating_mul(merged * merged).min(MOST_WIDTH), given]
            } else {
                [0; 3]
            },
        }))
    }

    /// Its matrices, stored as `block`.
    pub(super) fn weights(&self, block: Block) -> Vec<WeightGroup> {
        let of_layers = |each: u64| each * self.layers;
        let wide = if self.gated { 3 } else { 2 };
        let [mergers, merged, given] = self.mergers;
        let mut groups = Grouping::default();
        for (matrices, rows, columns) in [
            (of_layers(4), self.hidden, self.hidden),
            (of_layers(wide), self.intermediate, self.hidden),
            (1, self.hidden, self.patch),
            (u64::from(self.places > 0), self.places, self.hidden),
            (mergers, merged, merged),
            (mergers, given, merged),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parameters(config: &Value) -> Option<u64> {
        let map = config.as_object().unwrap();
        let towers = Tower::read(&Fields { map }).unwrap();
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
