//! The kernels that ship with the program: PTX text, and what the manifest says of it.
//!
//! `kernels/kernels.toml` names for every module the compute capabilities on which its instructions are those of the
//! hardware. On any other it is not offered: there the driver would assemble an emulation, whose rate is not the
//! rate of the precision claimed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::driver::{Device, Function, GpuError, Module};
use rooflined_core::precision::Precision;

const MANIFEST: &str = include_str!("../../kernels/kernels.toml");

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        const SOURCES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../kernels/ptx/", $name, ".ptx")))),*];
    };
}

sources! {
    "fma", "gemv_bf16", "gemv_f16", "gemv_f32", "gemv_f8", "gemv_i4g128", "gemv_i8", "gemv_mxf4",
    "gemv_nvf4", "gemv_q4_0", "gemv_q4_k", "gemv_q6_k", "gemv_q8_0", "launch", "mma_bf16", "mma_f16",
    "mma_f8", "mma_i4", "mma_i8", "mma_mxf8", "mma_nvf4", "mma_tf32", "stream", "tcgen05_bf16.sm100",
    "tcgen05_bf16.sm110", "tcgen05_f16.sm100", "tcgen05_f16.sm110", "tcgen05_f8.sm100", "tcgen05_f8.sm110",
    "tcgen05_i8.sm100", "tcgen05_i8.sm110", "tcgen05_nvf4.sm100", "tcgen05_nvf4.sm110", "wgmma_bf16",
    "wgmma_f16", "wgmma_f8", "wgmma_i8",
}

#[derive(Debug, Deserialize)]
struct Manifest {
    module: Vec<Row>,
}

/// What the manifest says of a module, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    /// Compute capabilities, times ten, where it runs on the units it claims.
    architectures: Vec<u32>,
    /// Whether it does on those that came later as well.
    #[serde(default)]
    newer: bool,
    /// Whether its instructions are those of a few GPUs only, and so may do what nobody has seen.
    #[serde(default)]
    apart: bool,
    entry: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Entry {
    name: String,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    #[serde(default)]
    pub shared: u32,
}

/// How the reason begins why an entry is not offered.
pub const NOT_NATIVE: &str = "does not run on the units it is named after";

static MANIFEST_READ: LazyLock<Result<Manifest, String>> =
    LazyLock::new(|| toml::from_str(MANIFEST).map_err(|error| error.to_string()));

impl Row {
    fn offered(&self, capability: u32) -> bool {
        let last = self.architectures.iter().max().copied().unwrap_or(u32::MAX);
        self.architectures.contains(&capability) || (self.newer && capability > last)
    }
}

/// A module and an entry of it that run natively on `capability`, by the name of the entry.
fn find(entry: &str, capability: u32) -> Result<(&'static Row, &'static Entry, &'static str), String> {
    let manifest = MANIFEST_READ.as_ref().map_err(|error| format!("the manifest of the kernels: {error}"))?;
    let has = |row: &&Row| row.entry.iter().any(|found| found.name == entry);
    let mut rows = manifest.module.iter().filter(has).peekable();
    if rows.peek().is_none() {
        return Err(format!("there is no kernel {entry}"));
    }
    let row = rows
        .find(|row| row.offered(capability))
        .ok_or_else(|| format!("{entry} {NOT_NATIVE} on compute capability {}", dotted(capability)))?;
    let found = row.entry.iter().find(|found| found.name == entry);
    let source = SOURCES.iter().find(|(name, _)| *name == row.name);
    found
        .zip(source)
        .map(|(found, (_, source))| (row, found, *source))
        .ok_or_else(|| format!("{} is not built in", row.name))
}

/// A module, as what stands or falls together: a kernel that goes wrong takes its process' hold on the GPU along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    pub module: &'static str,
    /// Whether it runs last, and in a process of its own until it has been right on the GPU at hand.
    pub apart: bool,
    /// Another one for another text.
    pub digest: u64,
}

/// The group of an entry; `None` where it does not run on `capability`.
pub fn group(entry: &str, capability: u32) -> Option<Group> {
    let (row, _, source) = find(entry, capability).ok()?;
    // FNV-1a.
    let digest = source
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    Some(Group { module: &row.name, apart: row.apart, digest })
}

/// 87 → 8.7.
pub fn dotted(capability: u32) -> String {
    format!("{}.{}", capability / 10, capability % 10)
}

#[derive(Debug, Default)]
pub struct Kernels {
    loaded: BTreeMap<&'static str, Module>,
}

impl Kernels {
    /// An entry ready to be launched.
    ///
    /// # Errors
    /// It is not for this GPU, or the driver does not take it.
    pub fn get(&mut self, device: &Device, entry: &str) -> Result<(Function, &'static Entry), GpuError> {
        let capability = device.facts().capability;
        let (row, found, source) = find(entry, capability).map_err(GpuError::Step)?;
        let module = match self.loaded.get(row.name.as_str()) {
            Some(module) => *module,
            None => {
                let module = device.load(source)?;
                self.loaded.insert(&row.name, module);
                module
            }
        };
        Ok((module.function(entry)?, found))
    }
}

/// How a peak's operands are laid out and how much one round of it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// Registers of one warp: `mma.sync.m16n8k*`, eight accumulators.
    Warp { k: usize },
    /// Whole matrices in shared memory: `m` rows for each of `groups` in a block, 256 columns.
    Shared {
        m: usize,
        k: usize,
        /// Tiles of a block.
        groups: usize,
    },
}

/// The type of the factors that blocks of a row are multiplied by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// ue4m3, one for 16 elements.
    E4m3,
    /// ue8m0, one for 32.
    E8m0,
}

impl Scale {
    /// Elements of a row that share a factor.
    pub const fn block(self) -> usize {
        match self {
            Self::E4m3 => 16,
            Self::E8m0 => 32,
        }
    }

    /// The code of two to the power of `exponent`, which is -6 to 7.
    pub const fn code(self, exponent: i8) -> u8 {
        match self {
            Self::E4m3 => ((exponent + 7) << 3).cast_unsigned(),
            Self::E8m0 => 127_u8.wrapping_add_signed(exponent),
        }
    }
}

/// A kernel that finds the peak of a precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    pub entry: &'static str,
    pub tile: Tile,
    /// How blocks of a row are scaled, where it takes scales.
    pub scale: Option<Scale>,
    /// Whether accumulators are fp16, two to a register.
    pub halves: bool,
}

/// Columns of a tile in shared memory.
pub const SHARED_COLUMNS: usize = 256;

const fn warp(entry: &'static str, k: usize) -> Peak {
    Peak { entry, tile: Tile::Warp { k }, scale: None, halves: false }
}

const fn scaled(peak: Peak, scale: Scale) -> Peak {
    Peak { scale: Some(scale), ..peak }
}

const fn warpgroup(entry: &'static str, k: usize) -> Peak {
    Peak { entry, tile: Tile::Shared { m: 64, k, groups: 2 }, scale: None, halves: false }
}

const fn fifth(entry: &'static str, k: usize) -> Peak {
    Peak { entry, tile: Tile::Shared { m: 128, k, groups: 1 }, scale: None, halves: false }
}

/// The kernels of a precision's tensor-core peak, the newest instructions first. Where those are, the older ones run at
/// a fraction of the rate. Accumulating in fp16 is no peak of a product that anybody would want, and comes last.
pub const fn peaks(precision: Precision) -> &'static [Peak] {
    match precision {
        Precision::Tf32 => const { &[warp("mma_tf32", 8)] },
        Precision::Fp16 => {
            const {
                &[
                    fifth("tcgen05_f16", 32),
                    warpgroup("wgmma_f16", 64),
                    warp("mma_f16_f32", 16),
                    Peak { halves: true, ..warp("mma_f16_f16", 16) },
                ]
            }
        }
        Precision::Bf16 => {
            const { &[fifth("tcgen05_bf16", 32), warpgroup("wgmma_bf16", 64), warp("mma_bf16", 16)] }
        }
        Precision::Fp8 => {
            const {
                &[
                    fifth("tcgen05_f8", 64),
                    warpgroup("wgmma_f8", 128),
                    warp("mma_f8", 32),
                    scaled(warp("mma_mxf8", 32), Scale::E8m0),
                ]
            }
        }
        Precision::Int8 => {
            const { &[fifth("tcgen05_i8", 64), warpgroup("wgmma_i8", 128), warp("mma_i8", 32)] }
        }
        Precision::Fp4 => {
            const { &[scaled(fifth("tcgen05_nvf4", 128), Scale::E4m3), scaled(warp("mma_nvf4", 64), Scale::E4m3)] }
        }
        Precision::Int4 => const { &[warp("mma_i4", 64)] },
        _ => &[],
    }
}

/// Capabilities with wgmma or tcgen05.
const TILED: [u32; 4] = [90, 100, 103, 110];

/// The kernel for a precision's peak on a GPU.
///
/// # Errors
/// The GPU has no unit for it, or there is no kernel that reaches it.
pub fn peak(precision: Precision, capability: u32) -> Result<Peak, String> {
    let known = peaks(precision);
    // Where the SMs have instructions for whole tiles, those of a warp reach a part of the rate.
    let is_peak = |peak: &&Peak| !(TILED.contains(&capability) && matches!(peak.tile, Tile::Warp { .. }));
    known.iter().filter(is_peak).find(|peak| find(peak.entry, capability).is_ok()).copied().ok_or_else(|| {
        if known.is_empty() {
            format!("there is no GPU kernel for the peak of {precision}")
        } else {
            format!(
                "no kernel of this program computes {precision} on units of its own on compute capability {}",
                dotted(capability)
            )
        }
    })
}
