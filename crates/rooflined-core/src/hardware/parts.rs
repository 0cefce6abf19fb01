//! What a driver tells of a GPU's parts: the entry of one that nobody has described, and the share of an instance of one that is
//! divided (MIG).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Hardware, Kind, registry};
use crate::precision::Precision;
use crate::units::{Bytes, BytesPerSecond, Hertz};

const MIB: f64 = 1024.0 * 1024.0;
/// Between the name of a card and the profile of its instance, in the name of an instance.
pub const MIG: &str = " MIG ";
/// Below the first and above the second the bandwidth by the memory's clock is that of other chips of memory. Fast memory of data
/// centres is rated lower than its clock says.
const OTHER_MEMORY: (f64, f64) = (0.97, 1.08);
/// Key of the entry that is made of what a driver tells.
pub const UNLISTED_GPU: &str = "unlisted-gpu";

/// The parts of a GPU, as far as its driver tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuParts {
    pub compute_capability: Option<(u32, u32)>,
    /// CUDA cores.
    pub cores: Option<u32>,
    /// Width of the memory interface.
    pub bus_bits: Option<u32>,
    /// Highest clock of the memory.
    pub memory_clock: Option<Hertz>,
    pub memory: Option<Bytes>,
    /// Whether it is divided into instances.
    pub is_divided: bool,
    /// Those instances, as far as anything tells of them.
    pub instances: Vec<GpuInstance>,
}

/// An instance of a GPU that is divided: what a process gets of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuInstance {
    pub sm: u32,
    /// Memory of its own; `None` where it shares one.
    pub memory: Option<Bytes>,
}

impl GpuParts {
    /// Whether nothing is told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The instance with the most SMs, which predictions are about.
    #[must_use]
    pub fn largest(&self) -> Option<&GpuInstance> {
        self.instances.iter().filter(|instance| instance.sm > 0).max_by_key(|instance| instance.sm)
    }

    /// The same without what no GPU can have.
    #[must_use]
    pub fn plausible(self) -> Self {
        Self {
            cores: self.cores.filter(|cores| (1..=1 << 20).contains(cores)),
            bus_bits: self.bus_bits.filter(|bits| (8..=1 << 16).contains(bits)),
            memory_clock: self.memory_clock.filter(|clock| (1e8..=1e11).contains(&clock.get())),
            memory: self.memory.filter(|memory| (1e8..=1e14).contains(&memory.get())),
            instances: self.instances.into_iter().filter(|of| (1..=4096).contains(&of.sm)).collect(),
            ..self
        }
    }

    /// Whether a process gets a part of it that nothing tells.
    #[must_use]
    pub fn share_is_unknown(&self) -> bool {
        self.is_divided && self.largest().is_none()
    }

    /// What `name` says of the one instance that is visible: `A100-SXM4-80GB MIG 1g.10gb` has one slice of seven and 10 GB. `None`
    /// where it names no instance, or one of a generation whose slices are not known.
    #[must_use]
    pub fn instance_of_name(name: &str, capability: Option<(u32, u32)>) -> Option<GpuInstance> {
        let profile = name.split_once(MIG)?.1;
        let (slices, rest) = profile.split_once("g.")?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Self::instance(slices.parse().ok()?, rest.get(..digits)?.parse().ok()?, capability)
    }

    /// The instance with so many slices, and gibibytes of memory.
    #[must_use]
    pub fn instance(slices: usize, gibibytes: f64, capability: Option<(u32, u32)>) -> Option<GpuInstance> {
        let sm = match capability? {
            // Each slice is a graphics cluster of 14 SMs.
            (8, 0) => u32::try_from(slices).ok()?.checked_mul(14)?,
            // `nvidia-smi mig -lgip` on an H100.
            (9, 0) => *[16, 32, 60, 64, 0, 0, 132].get(slices.checked_sub(1)?)?,
            _ => return None,
        };
        (sm > 0).then_some(GpuInstance { sm, memory: Some(Bytes(gibibytes * 1024.0 * MIB)) })
    }

    /// SMs of the whole: CUDA cores over those of one SM.
    #[must_use]
    pub fn sm(&self) -> Option<u32> {
        // CUDA C programming guide, arithmetic throughput of 32-bit floats: results per clock and SM.
        let per_sm = match self.compute_capability? {
            (3, _) => 192,
            (7, _) | (6 | 8, 0) => 64,
            _ => 128,
        };
        self.cores.filter(|cores| cores % per_sm == 0 && *cores > 0).map(|cores| cores / per_sm)
    }
}

/// Operations per SM and clock of generations before those of the registry, and of a Pascal that none of them is like (CUDA C
/// programming guide, arithmetic throughput; a multiply and an add are two).
fn older_rates(capability: (u32, u32)) -> Option<BTreeMap<Precision, f64>> {
    let (fp32, fp16) = match capability {
        (3, _) => (384.0, None),
        (5, 3) => (256.0, Some(512.0)),
        (5, _) => (256.0, None),
        (6, 0) => (128.0, Some(256.0)),
        _ => return None,
    };
    let fp16 = fp16.map(|rate| (Precision::Fp16, rate));
    Some([(Precision::Fp32, fp32)].into_iter().chain(fp16).collect())
}

/// The smaller chips of compute capability 7.5, TU116 and TU117, compute in pairs of halves and fours of INT8 on the units of
/// singles: GTX 16, MX, T400 to T2000 (recalled).
fn lacks_tensor_units(name: &str, capability: (u32, u32)) -> bool {
    let is_small = |word: &str| {
        let of_quadro = word
            .strip_prefix('T')
            .is_some_and(|digits| digits.len() >= 3 && digits.bytes().all(|byte| byte.is_ascii_digit()));
        word == "GTX" || word.starts_with("MX") || of_quadro
    };
    capability == (7, 5) && name.split(' ').any(is_small)
}

impl Hardware {
    /// The entry of a card called `name` that nobody has described: its parts, and of each precision the most that any known
    /// card of its compute capability, or else of the newest before it, computes per SM and clock; of older ones what CUDA's guide
    /// says. `None` where the driver tells too little.
    #[must_use]
    pub fn of_parts(name: &str, clock: Hertz, parts: &GpuParts) -> Option<Self> {
        let (capability, sm, bus_bits) = (parts.compute_capability?, parts.sm()?, parts.bus_bits?);
        let memory_clock = parts.memory_clock.filter(|clock| clock.is_positive())?;
        let of =
            |entry: &&Hardware| entry.kind == Kind::Discrete && entry.compute_capability <= Some(capability);
        let kin = registry().entries().filter(of).max_by_key(|entry| entry.compute_capability);
        let mut rates = older_rates(capability).unwrap_or_default();
        for entry in registry()
            .entries()
            .filter(|entry| kin.is_some_and(|kin| entry.compute_capability == kin.compute_capability))
            .filter(of)
        {
            for (precision, rate) in &entry.rates {
                let most = rates.entry(*precision).or_default();
                *most = most.max(*rate);
            }
        }
        if rates.is_empty() {
            return None;
        }
        if lacks_tensor_units(name, capability) {
            rates.retain(|precision, _| *precision == Precision::Fp32);
            if let Some(fp32) = rates.get(&Precision::Fp32).copied() {
                rates.extend([(Precision::Fp16, 2.0 * fp32), (Precision::Int8, 4.0 * fp32)]);
            }
        }
        let source = "what its driver tells".to_owned();
        Some(Self {
            key: UNLISTED_GPU.to_owned(),
            name: name.to_owned(),
            aliases: Vec::new(),
            kind: Kind::Discrete,
            compute_capability: Some(capability),
            sm,
            sm_per_tpc: kin.map_or(1, |kin| kin.sm_per_tpc),
            tpc_mask_bits: None,
            gpu_clock: clock,
            rates,
            bus_bits,
            memory_clock: Some(memory_clock),
            bandwidth: BytesPerSecond(f64::from(bus_bits) / 8.0 * 2.0 * memory_clock.get()),
            sm_pull: kin.and_then(|kin| kin.sm_pull),
            l2: None,
            memory: parts.memory,
            tdp: None,
            cpu: None,
            min_power_limit: None,
            modes: Vec::new(),
            dla_cores: 0,
            marketing: BTreeMap::new(),
            sources: [("sm".to_owned(), source)].into(),
            notes: Vec::new(),
        })
    }

    /// Whether a driver counts other SMs, or another bus, than this entry has: then it is a variant that is sold under the same
    /// name. Nothing is known of a GPU that is divided.
    #[must_use]
    pub fn differs_from(&self, parts: &GpuParts) -> bool {
        let other = |own: u32, told: Option<u32>| told.is_some_and(|told| told != own);
        let is_whole = !parts.is_divided && parts.instances.is_empty();
        is_whole
            && self.kind == Kind::Discrete
            && (other(self.sm, parts.sm()) || other(self.bus_bits, parts.bus_bits))
    }

    /// The bandwidth by the highest clock of the memory where it is not the one that this entry has: cards of one name are sold with
    /// memory of several kinds.
    #[must_use]
    pub fn other_bandwidth(&self, parts: &GpuParts) -> Option<BytesPerSecond> {
        let clock = parts.memory_clock.filter(|_| self.kind == Kind::Discrete && !parts.is_divided)?;
        let told = BytesPerSecond(f64::from(self.bus_bits) / 8.0 * 2.0 * clock.get());
        let ratio = told / self.bandwidth;
        // What is off by more is another unit.
        let is_other = (0.5..=2.0).contains(&ratio) && !(OTHER_MEMORY.0..=OTHER_MEMORY.1).contains(&ratio);
        is_other.then_some(told)
    }

    /// What a process gets of a GPU that is divided into such parts: the SMs of the largest instance, and of the memory and
    /// its bandwidth and the cache the share that the instance's memory is. The whole where it is not divided.
    #[must_use]
    pub fn of_instance(self, parts: &GpuParts) -> Self {
        let Some(instance) = parts.largest() else { return self };
        let whole = parts.memory.or(self.memory);
        let share = instance.memory.zip(whole).map_or(1.0, |(own, whole)| (own / whole).clamp(0.0, 1.0));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "no wider than the whole"
        )]
        let bus_bits = (f64::from(self.bus_bits) * share).round() as u32;
        Self {
            sm: instance.sm.min(self.sm),
            bus_bits,
            bandwidth: self.bandwidth * share,
            l2: self.l2.map(|l2| l2 * share),
            memory: instance.memory.or(self.memory),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

    fn parts(capability: (u32, u32), cores: u32, bus_bits: u32, megahertz: f64, gib: f64) -> GpuParts {
        GpuParts {
            compute_capability: Some(capability),
            cores: Some(cores),
            bus_bits: Some(bus_bits),
            memory_clock: Some(Hertz(megahertz * 1e6)),
            memory: Some(Bytes(gib * GIB)),
            ..GpuParts::default()
        }
    }

    /// What drivers of cards that have an entry tell, held against the entry.
    #[test]
    fn a_card_that_nobody_described_comes_out_close_to_the_entry_of_one_that_somebody_did() {
        for (key, told) in [
            ("rtx-4090", parts((8, 9), 16_384, 384, 10_501.0, 24.0)),
            ("h100-sxm", parts((9, 0), 16_896, 5_120, 2_619.0, 80.0)),
            ("a100-80gb", parts((8, 0), 6_912, 5_120, 1_593.0, 80.0)),
            ("t4", parts((7, 5), 2_560, 256, 5_001.0, 16.0)),
        ] {
            let known = registry().get(key).unwrap();
            let made = Hardware::of_parts("a card", known.gpu_clock, &told).unwrap();
            assert_eq!((made.sm, made.bus_bits), (known.sm, known.bus_bits), "{key}");
            let ratio = made.bandwidth / known.bandwidth;
            assert!((0.98..=1.02).contains(&ratio), "{key}: {ratio}");
            for (precision, rate) in &known.rates {
                assert!((1.0..=2.0).contains(&(made.rates[precision] / rate)), "{key} {precision:?}");
            }
        }
    }

    #[test]
    fn a_driver_that_tells_too_little_makes_no_entry() {
        let all = parts((8, 9), 16_384, 384, 10_501.0, 24.0);
        for less in [
            GpuParts { compute_capability: None, ..all.clone() },
            GpuParts { cores: Some(0), ..all.clone() },
            GpuParts { cores: Some(100), ..all.clone() },
            GpuParts { bus_bits: None, ..all.clone() },
            GpuParts { memory_clock: Some(Hertz(0.0)), ..all.clone() },
            GpuParts { compute_capability: Some((1, 0)), ..all.clone() },
            GpuParts { compute_capability: Some((2, 1)), ..all },
        ] {
            assert_eq!(Hardware::of_parts("a card", Hertz(2e9), &less), None, "{less:?}");
        }
    }

    /// GB/s, and TFLOPS of singles and halves, by data sheets (recalled).
    #[test]
    fn cards_from_before_the_registry_have_ceilings_too() {
        for (name, clock, told, gigabytes, fp32, fp16) in [
            (
                "Tesla P100-SXM2-16GB",
                1480e6,
                parts((6, 0), 3_584, 4_096, 715.0, 16.0),
                732.0,
                10.6,
                Some(21.2),
            ),
            (
                "NVIDIA GeForce GTX 1080 Ti",
                1582e6,
                parts((6, 1), 3_584, 352, 5_505.0, 11.0),
                484.0,
                11.3,
                None,
            ),
            ("Tesla M60", 1178e6, parts((5, 2), 2_048, 256, 2_505.0, 8.0), 160.0, 4.8, None),
            ("Tesla K80", 875e6, parts((3, 7), 2_496, 384, 2_505.0, 12.0), 240.0, 4.4, None),
            ("NVIDIA TITAN V", 1455e6, parts((7, 0), 5_120, 3_072, 850.0, 12.0), 653.0, 14.9, Some(119.2)),
        ] {
            let made = Hardware::of_parts(name, Hertz(clock), &told).unwrap();
            let peak = |precision| {
                let rate: f64 = *made.rates.get(&precision)?;
                Some(rate * f64::from(made.sm) * clock / 1e12)
            };
            let close = |found: f64, stated: f64| (found / stated - 1.0).abs() < 0.02;
            assert!(close(made.bandwidth.get() / 1e9, gigabytes), "{name}: {:?}", made.bandwidth);
            assert!(close(peak(Precision::Fp32).unwrap(), fp32), "{name}: {:?}", made.rates);
            let halves = peak(Precision::Fp16);
            assert!(halves.zip(fp16).map_or(halves == fp16, |(a, b)| close(a, b)), "{name}: {halves:?}");
        }
    }

    #[test]
    fn small_cards_of_a_generation_with_tensor_units_have_none() {
        let told = parts((7, 5), 896, 128, 4_001.0, 4.0);
        let fp16 = |name: &str| {
            let made = Hardware::of_parts(name, Hertz(2e9), &told).unwrap();
            made.rates[&Precision::Fp16] / made.rates[&Precision::Fp32]
        };
        for name in ["NVIDIA GeForce GTX 1650", "NVIDIA GeForce MX450", "NVIDIA T1000 8GB", "Quadro T2000"] {
            assert!((fp16(name) - 2.0).abs() < 1e-9, "{name}");
        }
        for name in ["NVIDIA TITAN RTX", "Tesla T10", "Quadro RTX 5000"] {
            assert!(fp16(name) >= 8.0, "{name}");
        }
    }

    #[test]
    fn the_name_of_an_instance_says_how_much_of_the_card_it_is() {
        let of = |name: &str, capability| {
            let instance = GpuParts::instance_of_name(name, Some(capability))?;
            Some((instance.sm, (instance.memory?.get() / GIB).round()))
        };
        for (name, capability, expected) in [
            ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", (8, 0), Some((14, 10.0))),
            ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", (8, 0), Some((42, 20.0))),
            ("NVIDIA A30 MIG 1g.6gb+me", (8, 0), Some((14, 6.0))),
            ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", (9, 0), Some((16, 10.0))),
            ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", (9, 0), Some((60, 40.0))),
            ("NVIDIA H100 80GB HBM3 MIG 5g.40gb", (9, 0), None),
            ("NVIDIA H100 80GB HBM3", (9, 0), None),
            ("NVIDIA Thor MIG 1g", (11, 0), None),
            ("NVIDIA A100 MIG 0g.", (8, 0), None),
            ("NVIDIA A100 MIG 99999999999g.1gb", (8, 0), None),
            ("NVIDIA H100 MIG 0g.1gb", (9, 0), None),
        ] {
            assert_eq!(of(name, capability), expected, "{name}");
        }
    }

    #[test]
    fn cards_of_one_name_have_the_bandwidth_of_their_own_memory() {
        for (key, bits, megahertz, expected) in [
            // With GDDR6 instead of GDDR6X.
            ("rtx-4070", 192, 10_001.0, Some(480.0)),
            ("rtx-4070", 192, 10_501.0, None),
            // SXM3 instead of SXM2.
            ("v100", 4096, 958.0, Some(981.0)),
            ("v100", 4096, 877.0, None),
            ("b200", 8192, 3_996.0, None),
            ("h200", 6144, 3_201.0, None),
            ("t4", 256, 5_001.0, None),
            ("rtx-5090", 512, 14_001.0, None),
            // Another unit, or no clock.
            ("t4", 256, 50_010.0, None),
        ] {
            let told = parts((8, 9), 0, bits, megahertz, 0.0);
            let found = registry().get(key).unwrap().other_bandwidth(&told);
            assert_eq!(found.map(|bandwidth| (bandwidth.get() / 1e9).round()), expected, "{key} {megahertz}");
        }
    }

    #[test]
    fn an_instance_has_its_sms_and_its_share_of_the_memory() {
        let whole = registry().get("h100-sxm").unwrap().clone();
        let of = |sm, gib: Option<f64>| GpuInstance { sm, memory: gib.map(|gib| Bytes(gib * GIB)) };
        let mut divided = parts((9, 0), 16_896, 5_120, 2_619.0, 80.0);
        assert_eq!(whole.clone().of_instance(&divided), whole);
        divided.instances = vec![of(16, Some(10.0)), of(60, Some(40.0))];
        let part = whole.clone().of_instance(&divided);
        assert_eq!((part.sm, part.memory), (60, Some(Bytes(40.0 * GIB))));
        assert!((part.bandwidth / whole.bandwidth - 0.5).abs() < 1e-9);
        assert!((part.memory_bandwidth(None) / whole.memory_bandwidth(None) - 0.5).abs() < 1e-3);
        // Thor's instances share the memory.
        divided.instances = vec![of(6, None)];
        let part = whole.clone().of_instance(&divided);
        assert_eq!((part.sm, part.bandwidth, part.memory), (6, whole.bandwidth, whole.memory));
    }
}
