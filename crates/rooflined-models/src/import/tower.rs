//! The towers that `vision_config`, `audio_config` and their kin describe: memory that a server takes beside the text model.
//!
//! `config/families/towers.toml` says which weights follow from the fields of each kind. A kind that it does not describe is taken
//! for a plain transformer where the error that this may make is small beside the model, and refused by its name elsewhere.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::families::{Defaults, Described, Family, read};
use super::fields::{Fields, INNER};
use super::{ImportError, short};
use crate::architecture::{MAX_WIDTH, Matrix};
use crate::block::Block;
use crate::model::{Grouping, WeightGroup};

// A test reads the file; one with an error would know no tower.
static TOWERS: LazyLock<BTreeMap<String, Family>> =
    LazyLock::new(|| read(include_str!("../../config/families/towers.toml")).unwrap_or_default());

/// Fields that a file may leave out, by kind.
static DEFAULTS: LazyLock<Defaults> = LazyLock::new(|| {
    toml::from_str(include_str!("../../config/families/tower_defaults.toml")).unwrap_or_default()
});

/// Words of the keys under which configurations keep towers.
const KEYS: &[&str] = &[
    "vision",
    "video",
    "audio",
    "speech",
    "acoustic",
    "semantic",
    "encoder",
    "qformer",
    "perceiver",
    "codec",
    "vq_",
    "talker",
];
/// Fields that any other network has under a key like these.
const LAYERS: &[&str] = &["num_hidden_layers", "num_layers", "n_layers", "depth"];
const WIDTHS: &[&str] = &["hidden_size", "embed_dim", "d_model", "width"];
/// Fields that name a tower which is published elsewhere.
const NAMES: &[&str] =
    &["mm_vision_tower", "mm_audio_tower", "speech_encoder", "vision_tower", "audio_tower"];
/// What is not described.
const PLAIN: &str = "tower";
/// Most of a model's weights that a tower of an unknown kind may have: such a count may be off by a factor.
const SMALL: f64 = 0.002;

/// One tower, or what joins one to the text model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tower {
    pub(super) name: String,
    matrices: Vec<Matrix>,
    /// Its kind is described.
    is_known: bool,
}

impl Tower {
    /// The towers of a configuration around a text model that is `width` wide; without matrices where it does not give their sizes.
    pub(super) fn read(outer: &Fields<'_>, width: u64) -> Result<Vec<Self>, ImportError> {
        let parts = outer.inner(&["thinker_config"]);
        let parts = parts.as_ref().unwrap_or(outer);
        let family = outer.text(&["model_type"]).unwrap_or_default();
        let (mut towers, mut seen) = (Vec::new(), 0);
        // What talks stands beside what thinks.
        let beside = outer
            .map
            .iter()
            .filter(|(key, _)| !std::ptr::eq(outer.map, parts.map) && *key != "thinker_config");
        for (key, value) in parts.map.iter().chain(beside) {
            let Some(map) = value.as_object().filter(|map| !map.is_empty()) else { continue };
            let fields = Fields { map };
            let is_part =
                (key.ends_with("_config") || key.ends_with("_cfg")) && !INNER.contains(&key.as_str());
            let is_network = || fields.any(LAYERS).is_some() && fields.any(WIDTHS).is_some();
            if !is_part || !(KEYS.iter().any(|word| key.contains(word)) || is_network()) {
                continue;
            }
            // Some towers say what they are, and others only belong to a model that is known.
            let place = format!("{family} {key}");
            let own = fields.text(&["model_type"]).filter(|own| !own.is_empty());
            let own = own.filter(|own| TOWERS.contains_key(*own) || !TOWERS.contains_key(&place));
            let name = own.map_or(place, str::to_owned);
            let is_known = TOWERS.contains_key(&name);
            let table = if is_known { name.as_str() } else { PLAIN };
            let (tower, hidden) = Self::of(table, is_known, outer, &fields, [width, 0])?;
            towers.push(Self { name: short(&name), ..tower });
            if matches!(key.as_str(), "vision_config" | "vit_config" | "vision_tower_cfg") {
                seen = hidden;
            }
        }
        for name in NAMES.iter().filter_map(|key| parts.text(&[*key])) {
            let (tower, hidden) = match TOWERS.contains_key(name) {
                true => Self::of(name, true, outer, outer, [width, 0])?,
                false => (Self::unknown(name), 0),
            };
            towers.push(tower);
            seen = hidden;
        }
        let joint = format!("{family} joint");
        if TOWERS.contains_key(&joint) && seen > 0 {
            towers.push(Self::of(&joint, true, outer, parts, [width, seen])?.0);
        }
        Ok(towers)
    }

    /// A tower of which only the name is known.
    pub(super) fn unknown(name: &str) -> Self {
        Self { name: short(name), ..Self::default() }
    }

    /// A tower by the table of that name, and its width.
    fn of(
        name: &str,
        is_known: bool,
        outer: &Fields<'_>,
        fields: &Fields<'_>,
        widths: [u64; 2],
    ) -> Result<(Self, u64), ImportError> {
        let described = Described::tower(name, (&*TOWERS, &*DEFAULTS), outer, fields, widths);
        let Some(mut described) = described else { return Ok((Self::default(), 0)) };
        let sizes =
            described.number("hidden").and_then(|hidden| Ok((described.matrices()?, hidden.unwrap_or(0))));
        let (matrices, hidden) = match sizes {
            Ok(sizes) => sizes,
            // A tower whose sizes are written in an unknown way is refused by its name.
            Err(_) => return Ok((Self::unknown(name), 0)),
        };
        let is_wide = |matrix: &Matrix| {
            [matrix.rows, matrix.columns, matrix.matrices].iter().any(|size| *size > MAX_WIDTH)
        };
        if let Some(Matrix { rows, columns, .. }) = matrices.iter().find(|matrix| is_wide(matrix)) {
            let reason = format!("would have a matrix of {rows} by {columns}");
            return Err(ImportError::Field { field: name.to_owned(), reason });
        }
        Ok((Self { name: name.to_owned(), matrices, is_known }, hidden))
    }

    /// Whether its size is known well enough beside a model of so many weights.
    #[expect(clippy::cast_precision_loss, reason = "shares need no last digit")]
    pub(super) fn is_sized(&self, beside: u64) -> bool {
        let own = self.weights(Block::Bf16).iter().map(|group| group.parameters).sum::<u64>();
        self.is_known || (own > 0 && (own as f64) < SMALL * beside as f64)
    }

    /// Its matrices, stored as `block`.
    pub(super) fn weights(&self, block: Block) -> Vec<WeightGroup> {
        let mut groups = Grouping::default();
        for matrix in &self.matrices {
            let bytes =
                block.size(matrix.rows, matrix.columns).and_then(|bytes| bytes.checked_mul(matrix.matrices));
            let parameters = u64::try_from(matrix.parameters()).ok();
            // Sizes are bounded above; a sum that does not fit would be left out.
            if let (Some(bytes), Some(parameters)) = (bytes, parameters) {
                let shape = (matrix.rows, matrix.columns);
                let _ = groups.add(matrix.class, block, shape, matrix.matrices, parameters, bytes);
            }
        }
        groups.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read_from(config: &Value) -> Vec<Tower> {
        Tower::read(&Fields { map: config.as_object().unwrap() }, 2048).unwrap()
    }

    fn parameters(config: &Value) -> u64 {
        let towers = read_from(config);
        let weights = towers.iter().flat_map(|tower| tower.weights(Block::Bf16));
        weights.map(|group| group.parameters).sum()
    }

    #[test]
    fn every_kind_of_tower_is_understood() {
        assert!(read(include_str!("../../config/families/towers.toml")).unwrap().len() > 20);
        assert!(DEFAULTS.len() > 20 && DEFAULTS.keys().all(|name| TOWERS.contains_key(name)));
    }

    /// 417 million by Gemma 3's technical report, some 670 by Qwen2.5-VL's with what connects it, 304 by CLIP's.
    #[test]
    fn towers_have_the_weights_that_their_reports_tell() {
        let siglip = json!({"model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896,
            "intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14});
        let qwen = json!({"model_type": "qwen2_5_vl", "depth": 32, "hidden_size": 1280, "intermediate_size": 3420,
            "in_chans": 3, "spatial_patch_size": 14, "temporal_patch_size": 2});
        let merged = json!({"model_type": "qwen2_vl", "depth": 32, "embed_dim": 1280, "hidden_size": 2048,
            "mlp_ratio": 4, "temporal_patch_size": 2});
        let shuffled = json!({"model_type": "siglip2_vision_model", "hidden_size": 768, "intermediate_size": 3072,
            "num_hidden_layers": 12, "vision_use_head": false});
        // Parts that do not say which they are, as published.
        let parts = json!({"model_type": "idefics2",
            "vision_config": {"model_type": "idefics2", "hidden_size": 1152, "intermediate_size": 4304,
                "num_hidden_layers": 27, "image_size": 980, "patch_size": 14},
            "perceiver_config": {"model_type": "idefics2"}});
        // CLIP's 304 million and 95 of SAM's encoder with its neck, beside what joins them to the text model.
        let deep = json!({"model_type": "vision", "model_name": "deeplip_b_l", "mlp_ratio": 3.7362, "image_size": 1024,
            "width": {"clip-l-14-224": {"layers": 24, "width": 1024}, "sam_vit_b": {"layers": 12, "width": 768}}});
        for (config, expected) in [
            (json!({"model_type": "deepseek_vl_v2", "vision_config": deep}), 304e6 + 95e6 + 12e6),
            (json!({"model_type": "gemma3", "vision_config": siglip}), 417e6),
            (json!({"model_type": "qwen2_vl", "vision_config": merged}), 667e6),
            (json!({"model_type": "lfm2_vl", "vision_config": shuffled}), 85e6 + 13e6),
            (parts, 654e6),
            (json!({"model_type": "qwen2_5_vl", "vision_config": qwen}), 670e6),
            (
                json!({"model_type": "llava_llama", "mm_vision_tower": "openai/clip-vit-large-patch14-336"}),
                304e6,
            ),
        ] {
            let share = parameters(&config) as f64 / expected;
            assert!((0.94..1.06).contains(&share), "{config}: {share}");
        }
    }

    #[test]
    fn a_kind_that_nobody_knows_counts_only_where_it_is_small() {
        let config =
            json!({"model_type": "x", "vision_config": {"model_type": "y", "hidden_size": 64, "depth": 2}});
        let [tower] = <[Tower; 1]>::try_from(read_from(&config)).unwrap();
        assert!(!tower.is_sized(1_000_000) && tower.is_sized(1_000_000_000));
        // Whatever its key is, and however it gives its sizes.
        for part in [
            json!({"vit_config": {"model_type": "y", "hidden_size": 1152, "num_hidden_layers": 27}}),
            json!({"sam_config": {"embed_dim": 768, "depth": 12}}),
            json!({"vision_config": {"model_type": "siglip", "hidden_size": {"a": 1152}, "num_hidden_layers": 27}}),
        ] {
            assert!(!read_from(&part)[0].is_sized(10_000_000_000), "{part}");
        }
        let named = read_from(&json!({"model_type": "x", "mm_vision_tower": "nobody/knows"}));
        assert!(!named[0].is_sized(u64::MAX) && named[0].name == "nobody/knows");
        let silent = read_from(&json!({"model_type": "x", "audio_config": {"model_type": "y"}}));
        assert!(!silent[0].is_sized(u64::MAX));
    }

    #[test]
    fn sizes_that_no_tower_has_are_refused_or_not_counted() {
        for depth in [u64::MAX, 1 << 40, 1 << 29] {
            let hostile =
                json!({"vision_config": {"hidden_size": depth, "depth": depth, "patch_size": depth}});
            let read = Tower::read(&Fields { map: hostile.as_object().unwrap() }, 2048);
            assert!(read.is_err() || read.unwrap().iter().all(|tower| tower.weights(Block::F32).is_empty()));
        }
    }
}
