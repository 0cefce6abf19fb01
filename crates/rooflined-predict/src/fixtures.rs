//! Values invented for unit tests.

#![expect(clippy::panic, reason = "a test that asks for what is not there fails")]

use std::collections::BTreeMap;

use crate::calibration::{Clock, Conditions, GemvCase, Kernel, Plan, Reference, Sample, Step};
use rooflined_core::board::{
    ActiveMode, Board, BoardState, Cache, Cpu, Gpu, GpuDriver, Knob, Load, Memory, PowerMode, PowerModes,
    Reading,
};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, Hertz, Seconds};

fn none<T>() -> Reading<T> {
    Reading::absent("not on this fixture")
}

/// Four cores, 1 MB of own cache each and 16 MB shared.
pub fn board() -> Board {
    Board {
        key: "cpu".into(),
        notes: Vec::new(),
        model: Reading::Known("Fixture".into()),
        kernel: Reading::Known("6.1.0".into()),
        os: none(),
        machine: Reading::Known("cafe".into()),
        module: none(),
        l4t: none(),
        cpu: Cpu {
            model: Reading::Known("Fixture CPU".into()),
            architecture: "x86_64".into(),
            logical: 4,
            cores: Reading::Known(4),
            kinds: Vec::new(),
            max_clock: none(),
            caches: vec![
                Cache { level: 2, kind: "unified".into(), size_bytes: 1 << 20, shared_by: 1, instances: 4 },
                Cache { level: 3, kind: "unified".into(), size_bytes: 16 << 20, shared_by: 4, instances: 1 },
            ],
            features: vec!["avx2".into(), "fma".into()],
        },
        gpu: none(),
        memory_clock_max: None,
        modes: none(),
        memory_total: Reading::Known(Bytes(16e9)),
        unified_memory: true,
        simulated: false,
        sources: BTreeMap::new(),
    }
}

/// Idle, with 8 GB available.
pub fn state() -> BoardState {
    BoardState {
        cores_online: Reading::Known(4),
        cpu_clock_cap: Reading::Known(Hertz(3e9)),
        memory: Reading::Known(Memory {
            total: Bytes(16e9),
            available: Bytes(8e9),
            free: Bytes(4e9),
            swap_used: Bytes(0.0),
        }),
        load: Reading::Known(Load { average_1m: 0.1, busy_ratio: Some(0.02), steal_ratio: Some(0.0) }),
        ..BoardState::unknown(Seconds(1.0), "not on this fixture")
    }
}

/// The hidden truth of the machine that [`samples`] pretends to have measured.
pub mod truth {
    /// Bytes per second from main memory, near regime.
    pub const BANDWIDTH: f64 = 50e9;
    /// FP32 operations per second, all cores.
    pub const FP32: f64 = 400e9;
    pub const CLOCK: f64 = 3e9;
    pub const THREADS: u32 = 4;
    pub const WAKE: f64 = 3e-6;
    /// Time until a kernel streams at full bandwidth.
    pub const RAMP: f64 = 4e-6;
    /// Cycles of one worker for one int4 weight: more than memory needs.
    pub const INT4_CYCLES: f64 = 0.5;
    /// The same for every other format.
    pub const CYCLES: f64 = 0.05;
}

/// What the fixture's memory system looks like: `drift` = part of the bandwidth that neighbours leave.
pub fn point(drift: f64, core_to_core: f64) -> Conditions {
    Conditions {
        clock: Clock { effective: Hertz(truth::CLOCK), reported: None },
        reference: Reference {
            read: BytesPerSecond(0.97 * truth::BANDWIDTH * drift),
            core_to_core: Some(Seconds(core_to_core)),
        },
        steal_ratio: Some(0.0),
        temperature: None,
    }
}

/// The exact time of a kernel on the fixture machine.
pub fn true_time(kernel: &Kernel, threads: u32, drift: f64) -> (f64, Flops, Bytes, f64) {
    let norm = |parts: &[f64]| parts.iter().map(|part| part.powi(4)).sum::<f64>().powf(0.25);
    let memory = |bytes: f64| truth::RAMP + bytes / (truth::BANDWIDTH * drift);
    match *kernel {
        Kernel::Stream { bytes, .. } if bytes > 32 << 20 => {
            let bytes = bytes as f64;
            (bytes / (truth::BANDWIDTH * drift), Flops(0.0), Bytes(bytes), 0.0)
        }
        Kernel::Stream { bytes, .. } => {
            let level = if bytes < 1 << 20 { 40.0 } else { 8.0 };
            let bytes = bytes as f64;
            (bytes / (truth::BANDWIDTH * level), Flops(0.0), Bytes(bytes), 0.0)
        }
        Kernel::Peak { .. } => {
            let part = f64::from(threads) / f64::from(truth::THREADS);
            (1e9 / (truth::FP32 * part), Flops(1e9), Bytes(0.0), 0.0)
        }
        Kernel::Gemv { n, k, columns, format, case } => {
            let weights = (n * k) as f64;
            let cycles = if format == WeightFormat::Int4 { truth::INT4_CYCLES } else { truth::CYCLES };
            let core =
                weights * cycles * (1.0 + 0.5 * (columns as f64 - 1.0)) / f64::from(threads) / truth::CLOCK;
            let bytes = format.bytes(weights).get() + 4.0 * (n + k) as f64;
            let time = match case {
                GemvCase::Cache => core,
                GemvCase::Dram => norm(&[core, memory(bytes)]),
            };
            (truth::WAKE + time, Flops(2.0 * weights * columns as f64), Bytes(bytes), weights)
        }
        Kernel::Gemm { m, n, k } => {
            let (m, n, k) = (m as f64, n as f64, k as f64);
            let utilisation = m / (m + 16.0);
            let bytes = 4.0 * (n * k + m * k + m * n);
            let work = 2.0 * m * n * k;
            (
                truth::WAKE + norm(&[memory(bytes), work / (truth::FP32 * utilisation)]),
                Flops(work),
                Bytes(bytes),
                n * k,
            )
        }
        Kernel::Wake => (truth::WAKE, Flops(0.0), Bytes(0.0), 0.0),
        Kernel::Submit => (2.0 * truth::WAKE, Flops(0.0), Bytes(0.0), 0.0),
        Kernel::PingPong => (50e-9, Flops(0.0), Bytes(128.0), 0.0),
    }
}

/// One sample of the fixture machine, exact but for a part in a hundred of spread.
pub fn sample(step: &Step, drift: f64, core_to_core: f64) -> Sample {
    let (time, flops, bytes, weights) = true_time(&step.kernel, step.threads, drift);
    Sample {
        kernel: step.kernel,
        threads: step.threads,
        isa: "fixture".into(),
        flops,
        bytes,
        weights,
        times: [1.0, 1.004, 0.998, 1.01, 1.0].iter().map(|spread| Seconds(time * spread)).collect(),
        overhead: Seconds(0.0),
        max_error_ratio: Some(1e-6),
        waiting_ratio: Some(0.0),
        left_out: 0,
        corrected_ratio: 0.0,
        other_work: None,
        before: point(drift, core_to_core),
        after: point(drift, core_to_core),
    }
}

/// Everything a plan asks for.
pub fn samples(plan: &Plan) -> Vec<Sample> {
    plan.steps.iter().map(|step| sample(step, 1.0, 50e-9)).collect()
}

/// A Jetson AGX Orin 64GB with two of its modes, the GPU its accelerator. Simulated, so that it may be measured.
pub fn jetson() -> Board {
    let mode = |id, name: &str, cores, sm, mask, gpu: Option<f64>| PowerMode {
        id,
        name: name.into(),
        cores_online: Some(cores),
        cpu_max: None,
        gpu_max: gpu.map(Hertz),
        memory_max: None,
        tpc_mask: Some(mask),
        sm_online: Some(sm),
        knob: Knob::Nvpmodel,
        settings: Vec::new(),
    };
    Board {
        key: "jetson-agx-orin-64gb".into(),
        gpu: Reading::Known(Gpu {
            name: Reading::Known("ga10b".into()),
            driver: GpuDriver::Devfreq,
            sm_total: Reading::Known(16),
            max_clock: Reading::Known(Hertz(1300.5e6)),
            clocks: Vec::new(),
            driver_version: none(),
            parts: Default::default(),
        }),
        memory_clock_max: None,
        modes: Reading::Known(PowerModes {
            default: Some(2),
            modes: vec![
                mode(0, "MAXN", 12, 16, 0, None),
                mode(2, "MODE_30W", 8, 8, 240, Some(612e6)),
                mode(3, "MODE_50W", 12, 16, 0, Some(816e6)),
            ],
            warnings: Vec::new(),
            source: "/etc/nvpmodel.conf".into(),
        }),
        simulated: true,
        ..board()
    }
}

/// It, idle, in the mode of that number of [`jetson`]: the clock is an idle one, the caps are the mode's.
pub fn jetson_in(id: u32) -> BoardState {
    let board = jetson();
    let mode = board.modes.known().and_then(|modes| modes.by_id(id)).cloned();
    let mode = mode.unwrap_or_else(|| panic!("mode {id} is not on the fixture"));
    BoardState {
        power_mode: Reading::Known(ActiveMode { id, name: mode.name }),
        gpu_clock: Reading::Known(Hertz(306e6)),
        gpu_clock_cap: Reading::Known(mode.gpu_max.unwrap_or(Hertz(1300.5e6))),
        gpu_load: Reading::Known(0.0),
        tpc_mask: mode.tpc_mask.map_or_else(none, Reading::Known),
        sm_online: mode.sm_online.map_or_else(none, Reading::Known),
        memory_clock: Reading::Known(Hertz(665.6e6)),
        memory_clock_cap: Reading::Known(Hertz(3199e6)),
        ..state()
    }
}

/// Numbers that look random and are the same in every run.
#[derive(Debug)]
pub struct Noise(u64);

impl Noise {
    /// A series of its own for every seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Between 0 and 1, after G. Steele, D. Lea, C. Flood: splitmix64.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub const fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Of mean 0 and standard deviation 1, after Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}
