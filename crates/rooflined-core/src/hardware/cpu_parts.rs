//! What a data sheet tells of a CPU: the cores that an engine's threads use, their clock and their instructions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::board::{Cache, Cpu, Reading};
use crate::precision::Precision;
use crate::units::Hertz;

/// A CPU by its data sheet.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CpuParts {
    /// Physical cores that an engine's threads use: of two kinds, the fast ones.
    pub cores: u32,
    /// Logical CPUs, those of other kinds of cores too.
    pub threads: u32,
    /// Highest clock of these cores when all of them compute.
    pub clock_hz: f64,
    /// Single-precision operations of a core and clock; a multiply-add is two.
    pub fp32_per_clock: f64,
    /// Last-level cache, all instances together.
    pub cache_bytes: Option<f64>,
    /// Instruction-set flags that decide which kernels run, in the kernel's spelling.
    pub features: Vec<String>,
}

/// Flags that say which kernels an engine runs, with the operations of a precision that they add, over those in single
/// precision. Eight-bit dot products do four multiplications where one was, matrix instructions eight.
const FEATURES: &[(&str, Option<(Precision, f64)>)] = &[
    ("avx2", Some((Precision::Int8, 2.0))),
    ("avx_vnni", Some((Precision::Int8, 4.0))),
    ("avx512f", None),
    ("avx512_vnni", Some((Precision::Int8, 4.0))),
    ("avx512_bf16", Some((Precision::Bf16, 2.0))),
    ("avx512_fp16", Some((Precision::Fp16, 2.0))),
    ("amx_int8", None),
    ("amx_bf16", None),
    ("asimd", None),
    ("asimdhp", Some((Precision::Fp16, 2.0))),
    ("asimddp", Some((Precision::Int8, 4.0))),
    ("bf16", Some((Precision::Bf16, 4.0))),
    ("i8mm", Some((Precision::Int8, 8.0))),
    ("sve", None),
    ("sve2", None),
];

impl CpuParts {
    /// The instruction-set flags that a file may name.
    pub fn known_features() -> impl Iterator<Item = &'static str> {
        FEATURES.iter().map(|(feature, _)| *feature)
    }

    /// Clock of the cores under load.
    #[must_use]
    pub const fn clock(&self) -> Hertz {
        Hertz(self.clock_hz)
    }

    /// Operations of a core and clock by precision, as its instructions allow.
    #[must_use]
    pub fn rates(&self) -> BTreeMap<Precision, f64> {
        let mut ratios = BTreeMap::from([(Precision::Fp32, 1.0), (Precision::Fp64, 0.5)]);
        for (_, adds) in FEATURES.iter().filter(|(known, _)| self.features.iter().any(|own| own == known)) {
            if let Some((precision, ratio)) = adds {
                ratios
                    .entry(*precision)
                    .and_modify(|best: &mut f64| *best = best.max(*ratio))
                    .or_insert(*ratio);
            }
        }
        ratios.into_iter().map(|(precision, ratio)| (precision, ratio * self.fp32_per_clock)).collect()
    }

    /// The same as a machine with it is found to have.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of caches are whole")]
    pub fn on_board(&self, name: &str) -> Cpu {
        let cache = |size: f64| Cache {
            level: 3,
            kind: "unified".to_owned(),
            size_bytes: size as u64,
            shared_by: self.threads,
            instances: 1,
        };
        let is_arm = self.features.iter().any(|feature| feature.starts_with("asimd"));
        Cpu {
            model: Reading::Known(name.to_owned()),
            architecture: if is_arm { "aarch64" } else { "x86_64" }.to_owned(),
            logical: self.threads,
            cores: Reading::Known(self.cores),
            kinds: Vec::new(),
            max_clock: Reading::Known(self.clock()),
            caches: self.cache_bytes.map(cache).into_iter().collect(),
            features: self.features.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_several_instructions_counts_and_without_one_there_is_no_unit() {
        let of = |features: &[&str]| CpuParts {
            fp32_per_clock: 16.0,
            features: features.iter().map(|feature| (*feature).to_owned()).collect(),
            ..CpuParts::default()
        };
        assert_eq!(of(&["asimd", "asimddp", "i8mm"]).rates()[&Precision::Int8], 128.0);
        assert_eq!(of(&["avx2"]).rates()[&Precision::Int8], 32.0);
        assert_eq!(of(&["avx2"]).rates().get(&Precision::Bf16), None);
    }
}
