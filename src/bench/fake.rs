//! A machine whose ceilings are known: samples in pure arithmetic, for testing what is fitted to them.
//!
//! The clock, the memory regime and single runs can be disturbed on demand, step by step, so that a test can ask
//! whether the fit finds the truth and names what it dropped.

use std::collections::BTreeMap;

use super::gemv::pack;
use super::runner::{Outcome, Probe};
use crate::calibration::{
    Clock, Conditions, GemvCase, Kernel, Plan, Reference, Sample, Step, Stores, Stream,
};
use crate::precision::{Precision, WeightFormat};
use crate::units::{Bytes, BytesPerSecond, Celsius, Flops, FlopsPerSecond, Hertz, Seconds};

/// What memory gives while the machine is in one of its conditions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Regime {
    /// Most that one worker reads from main memory.
    pub read_one: BytesPerSecond,
    /// Most that all workers together read.
    pub read_all: BytesPerSecond,
    /// One-way core-to-core latency.
    pub core_to_core: Seconds,
}

/// The hidden truth.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// Cores.
    pub cores: u32,
    /// The clock that every rate below belongs to; in-core rates follow the clock, memory does not.
    pub clock: Hertz,
    /// The regimes the machine may be in; the first is where it starts.
    pub regimes: Vec<Regime>,
    /// Caches from the smallest: capacity and read bandwidth of one core. The last one is shared by all cores.
    pub caches: Vec<(Bytes, BytesPerSecond)>,
    /// Peak of one core; a precision that is not listed has no unit.
    pub peaks: BTreeMap<Precision, FlopsPerSecond>,
    /// In-core cycles per stored weight and column; a format that is not listed has no kernel.
    pub cycles_per_weight: BTreeMap<WeightFormat, f64>,
    /// Part of the fp32 peak that GEMM reaches.
    pub gemm_efficiency: f64,
    /// Cost of starting a region on more than one worker.
    pub launch: Seconds,
    /// Exponent of the p-norm that joins memory and in-core time; 1 adds them, infinity takes the larger.
    pub overlap: f64,
}

impl Default for Truth {
    /// Two cores much like the development machine's.
    fn default() -> Self {
        use WeightFormat as F;
        let regime = |one, all, nanos| Regime {
            read_one: BytesPerSecond(one),
            read_all: BytesPerSecond(all),
            core_to_core: Seconds(nanos * 1e-9),
        };
        Self {
            cores: 2,
            clock: Hertz(4.05e9),
            regimes: vec![regime(40e9, 72e9, 210.0), regime(38e9, 41e9, 45.0)],
            caches: vec![
                (Bytes(48.0 * 1024.0), BytesPerSecond(390e9)),
                (Bytes(1024.0 * 1024.0), BytesPerSecond(240e9)),
                (Bytes(32.0 * 1024.0 * 1024.0), BytesPerSecond(110e9)),
            ],
            peaks: [(Precision::Fp32, 267e9), (Precision::Bf16, 500e9), (Precision::Int8, 1070e9)]
                .map(|(precision, peak)| (precision, FlopsPerSecond(peak)))
                .into(),
            cycles_per_weight: [
                (F::Fp32, 0.12),
                (F::Fp16, 0.08),
                (F::Bf16, 0.06),
                (F::Int8, 0.03),
                (F::Int4, 0.02),
                (F::Int4G32, 0.05),
                (F::Int4G128, 0.03),
                (F::Q8_0, 0.06),
                (F::Q4_0, 0.06),
            ]
            .into(),
            gemm_efficiency: 0.8,
            launch: Seconds(0.6e-6),
            overlap: 4.0,
        }
    }
}

/// Something that happens to the machine while a plan runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Disturbance {
    /// Between the two operating points of a step the clock goes from `before` to `after`, as parts of the true one;
    /// it is back for the next step. The step runs at the mean of the two.
    ClockMoves {
        /// Index of the step.
        step: usize,
        /// Part of the true clock at its start.
        before: f64,
        /// Part of the true clock at its end.
        after: f64,
    },
    /// From this step on the machine is in another regime.
    EntersRegime {
        /// Index of the step.
        step: usize,
        /// Index in [`Truth::regimes`].
        regime: usize,
    },
    /// In the middle of this step the machine enters another regime, and stays there.
    RegimeFlipsDuring {
        /// Index of the step.
        step: usize,
        /// Index in [`Truth::regimes`].
        regime: usize,
    },
    /// The times of this step are multiplied: above 1 a neighbour is busy, below 1 something is wrong, such as data
    /// found in a cache.
    TimesScale {
        /// Index of the step.
        step: usize,
        /// The factor.
        factor: f64,
    },
    /// The hypervisor gives this part of a step's CPU time to others.
    Steal {
        /// Index of the step.
        step: usize,
        /// The part.
        ratio: f64,
    },
    /// The kernel of this step computes nonsense: its error is this large.
    WrongResult {
        /// Index of the step.
        step: usize,
        /// The relative deviation.
        error: f64,
    },
}

/// A probe of an imaginary machine.
#[derive(Debug, Clone)]
pub struct Fake {
    /// What a fit should find.
    pub truth: Truth,
    /// Relative standard deviation of single times.
    pub noise: f64,
    /// One run in this many is an outlier, up to three times slower; 0 for none.
    pub outlier_every: u32,
    /// Times in each sample.
    pub runs: usize,
    /// What goes wrong.
    pub disturbances: Vec<Disturbance>,
    rng: fastrand::Rng,
    step: usize,
    regime: usize,
}

impl Fake {
    /// A machine with 1 % noise and nothing going wrong.
    #[must_use]
    pub fn new(truth: Truth, seed: u64) -> Self {
        Self {
            truth,
            noise: 0.01,
            outlier_every: 50,
            runs: 25,
            disturbances: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
            step: 0,
            regime: 0,
        }
    }

    /// All samples of a plan; what cannot run is left out.
    pub fn samples(&mut self, plan: &Plan) -> Vec<Sample> {
        let measured = plan.steps.iter().filter_map(|step| match self.measure(step, &|| false) {
            Outcome::Measured(sample) => Some(*sample),
            Outcome::Skipped(_) | Outcome::Stopped | Outcome::Lost(_) => None,
        });
        measured.collect()
    }

    /// Normal with mean 0 and variance 1, near enough: a sum of twelve uniform numbers.
    fn gaussian(&mut self) -> f64 {
        (0..12).map(|_| self.rng.f64()).sum::<f64>() - 6.0
    }

    fn operating_point(&mut self, clock: f64, steal_ratio: f64) -> Conditions {
        let regime = self.truth.regimes.get(self.regime).copied();
        let wobble = 1.0 + self.noise * self.gaussian();
        let read = regime.map_or(BytesPerSecond::ZERO, |regime| regime.read_all * wobble);
        let latency = regime.filter(|_| self.truth.cores > 1).map(|regime| regime.core_to_core);
        Conditions {
            clock: Clock {
                effective: self.truth.clock * clock * (1.0 + 0.001 * self.gaussian()),
                reported: None,
            },
            reference: Reference { read, core_to_core: latency },
            steal_ratio: Some(steal_ratio),
            temperature: Some(Celsius(55.0)),
        }
    }
}

impl Truth {
    /// Bandwidth that `threads` workers read at over a working set, in a regime.
    #[must_use]
    pub fn read(&self, bytes: Bytes, threads: u32, regime: &Regime) -> BytesPerSecond {
        let workers = f64::from(threads);
        let last = self.caches.len().saturating_sub(1);
        for (level, (capacity, rate)) in self.caches.iter().enumerate() {
            let capacity = if level == last { *capacity } else { *capacity * workers };
            if bytes <= capacity {
                return *rate * workers;
            }
        }
        self.dram(threads, regime)
    }

    /// Bandwidth of main memory for `threads` workers.
    #[must_use]
    pub fn dram(&self, threads: u32, regime: &Regime) -> BytesPerSecond {
        (regime.read_one * f64::from(threads)).min(regime.read_all)
    }

    /// Joins memory and in-core time.
    #[must_use]
    pub fn join(&self, memory: Seconds, core: Seconds) -> Seconds {
        let (long, short) = (memory.max(core).get(), memory.min(core).get());
        if long <= 0.0 {
            return Seconds::ZERO;
        }
        Seconds(long * (1.0 + (short / long).powf(self.overlap)).powf(1.0 / self.overlap))
    }

    fn launch(&self, threads: u32) -> Seconds {
        if threads > 1 { self.launch } else { Seconds::ZERO }
    }

    /// Time, operations, traffic and weights of one run with the clock at `clock` times the true one; `Err` with the
    /// reason where it cannot run.
    fn cost(&self, step: &Step, clock: f64, regime: &Regime) -> Result<Cost, String> {
        let threads = step.threads;
        if threads == 0 || threads > self.cores {
            return Err(format!("wants {threads} threads, and {} CPUs may be used", self.cores));
        }
        let workers = f64::from(threads);
        #[expect(clippy::cast_precision_loss, reason = "dimensions of matrices")]
        let float = |count: u64| count as f64;
        match step.kernel {
            Kernel::Stream { pattern, bytes, stores } => {
                let bytes = Bytes(float(bytes));
                let mut rate = self.read(bytes, threads, regime);
                if pattern != Stream::Read && stores == Stores::Temporal {
                    // A quarter to a third of the traffic is reading lines only to overwrite them.
                    rate = rate * if pattern == Stream::Copy { 2.0 / 3.0 } else { 0.75 };
                }
                let flops = if pattern == Stream::Copy { 0.0 } else { bytes.get() / 4.0 };
                Ok(Cost { time: bytes / rate, flops: Flops(flops), bytes, weights: 0.0 })
            }
            Kernel::Peak { precision } => {
                let peak = self.peaks.get(&precision).ok_or_else(|| super::peak::absence(precision))?;
                let flops = Flops(1e7 * workers);
                Ok(Cost { time: flops / (*peak * workers * clock), flops, bytes: Bytes::ZERO, weights: 0.0 })
            }
            Kernel::Gemv { n, k, columns, format, case } => {
                let cycles = self.cycles_per_weight.get(&format);
                let cycles = *cycles.ok_or_else(|| format!("there is no CPU kernel for {format}"))?;
                let weights = float(n) * float(k);
                let row =
                    usize::try_from(k).ok().and_then(|k| pack::row_bytes(format, k)).unwrap_or_default();
                let scales = if pack::has_row_scales(format) { 4.0 } else { 0.0 };
                let bytes = Bytes(float(n) * (float(row as u64) + scales));
                let core = (cycles * weights * float(columns)) / (self.clock * clock * workers);
                let memory = match case {
                    GemvCase::Dram => bytes / self.dram(threads, regime),
                    GemvCase::Cache => Seconds::ZERO,
                };
                let time = self.launch(threads) + self.join(memory, core);
                Ok(Cost { time, flops: Flops(2.0 * weights * float(columns)), bytes, weights })
            }
            Kernel::Gemm { m, n, k } => {
                let peak =
                    self.peaks.get(&Precision::Fp32).ok_or_else(|| super::peak::absence(Precision::Fp32))?;
                let weights = float(n) * float(k);
                let flops = Flops(2.0 * weights * float(m));
                let bytes = Bytes(4.0 * (weights + float(m) * (float(n) + float(k))));
                let core = flops / (*peak * workers * clock * self.gemm_efficiency);
                let time = self.launch(threads) + self.join(bytes / self.dram(threads, regime), core);
                Ok(Cost { time, flops, bytes, weights })
            }
            Kernel::Attention { batch, heads, kv_heads, head_dim, context_tokens } => {
                let keys = float(batch) * (float(context_tokens) + 1.0) * float(head_dim);
                let bytes = Bytes(4.0 * keys * float(kv_heads));
                let core = Seconds(0.25 * keys * float(heads) / (self.clock.get() * clock * workers));
                let time = self.launch(threads) + self.join(bytes / self.dram(threads, regime), core);
                Ok(Cost { time, flops: Flops(4.0 * keys * float(heads)), bytes, weights: 0.0 })
            }
            Kernel::Elementwise { width, columns } => {
                let elements = 8.0 * float(width) * float(columns);
                let time =
                    self.launch(threads) + Seconds(0.4 * elements / (self.clock.get() * clock * workers));
                Ok(Cost { time, flops: Flops(elements), bytes: Bytes::ZERO, weights: 0.0 })
            }
            Kernel::Forward { .. } => Err("this machine runs no models".into()),
            Kernel::Wake => Ok(Cost { time: self.launch(threads) + Seconds(2e-9), ..Cost::default() }),
            Kernel::Submit => Err("is measured on GPUs only".into()),
            Kernel::PingPong if threads < 2 => Err("needs two threads".into()),
            Kernel::PingPong => Ok(Cost { time: regime.core_to_core, ..Cost::default() }),
        }
    }
}

#[derive(Default, Clone, Copy)]
struct Cost {
    time: Seconds,
    flops: Flops,
    bytes: Bytes,
    weights: f64,
}

/// What the disturbances make of one step.
struct Disturbed {
    clock: (f64, f64),
    regime_after: Option<usize>,
    factor: f64,
    steal: f64,
    error: f64,
}

impl Fake {
    fn conditions(&mut self) -> Disturbed {
        let mut found =
            Disturbed { clock: (1.0, 1.0), regime_after: None, factor: 1.0, steal: 0.0, error: 1e-7 };
        for disturbance in &self.disturbances {
            match *disturbance {
                Disturbance::ClockMoves { step, before, after } if step == self.step => {
                    found.clock = (before, after);
                }
                Disturbance::EntersRegime { step, regime } if step == self.step => self.regime = regime,
                Disturbance::RegimeFlipsDuring { step, regime } if step == self.step => {
                    found.regime_after = Some(regime);
                }
                Disturbance::TimesScale { step, factor } if step == self.step => found.factor *= factor,
                Disturbance::Steal { step, ratio } if step == self.step => found.steal = ratio,
                Disturbance::WrongResult { step, error } if step == self.step => found.error = error,
                _ => {}
            }
        }
        found
    }

    fn times(&mut self, step: &Step, conditions: &Disturbed) -> Result<(Cost, Vec<Seconds>), String> {
        let clock = f64::midpoint(conditions.clock.0, conditions.clock.1);
        let regimes = [self.regime, conditions.regime_after.unwrap_or(self.regime)];
        let mut times = Vec::with_capacity(self.runs);
        let mut cost = Cost::default();
        for run in 0..self.runs {
            let regime = regimes[usize::from(2 * run >= self.runs)];
            let regime = self.truth.regimes.get(regime).ok_or("the fake has no such regime")?;
            cost = self.truth.cost(step, clock, regime)?;
            // Disturbances only ever slow a run down; the floor keeps the noise from beating physics by much.
            let mut factor =
                (1.0 + self.noise * self.gaussian()).max(1.0 - 2.0 * self.noise) * conditions.factor;
            if self.outlier_every > 0 && self.rng.u32(..self.outlier_every) == 0 {
                factor *= 1.0 + 2.0 * self.rng.f64();
            }
            times.push(cost.time * (factor / (1.0 - conditions.steal)));
        }
        Ok((cost, times))
    }
}

impl Probe for Fake {
    fn measure(&mut self, step: &Step, _stop: &dyn Fn() -> bool) -> Outcome {
        let conditions = self.conditions();
        self.step += 1;
        let (cost, times) = match self.times(step, &conditions) {
            Ok(timed) => timed,
            Err(reason) => return Outcome::Skipped(reason),
        };
        let before = self.operating_point(conditions.clock.0, 0.0);
        self.regime = conditions.regime_after.unwrap_or(self.regime);
        let after = self.operating_point(conditions.clock.1, conditions.steal);
        let has_result =
            matches!(step.kernel, Kernel::Gemv { .. } | Kernel::Gemm { .. } | Kernel::Peak { .. });
        Outcome::Measured(Box::new(Sample {
            kernel: step.kernel,
            threads: step.threads,
            isa: "fake".into(),
            flops: cost.flops,
            bytes: cost.bytes,
            weights: cost.weights,
            times,
            overhead: Seconds(30e-9),
            max_error_ratio: has_result.then_some(conditions.error),
            waiting_ratio: Some(0.0),
            before,
            after,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::Accelerator;

    fn plan(kernel: Kernel, threads: u32, steps: usize) -> Plan {
        Plan {
            steps: vec![Step { kernel, threads, budget_s: 0.01 }; steps],
            holds: Vec::new(),
            models: Vec::new(),
            accelerator: Accelerator::default(),
            cpus: vec![],
            warm_up_s: 0.1,
            time_limit_s: 10.0,
            memory_limit_bytes: 1 << 30,
            seed: 1,
        }
    }

    fn median(sample: &Sample) -> f64 {
        let mut times: Vec<f64> = sample.times.iter().map(|time| time.get()).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    const READ: Kernel = Kernel::Stream { pattern: Stream::Read, bytes: 256 << 20, stores: Stores::Temporal };

    #[test]
    fn the_median_shows_the_hidden_ceiling() {
        let samples = Fake::new(Truth::default(), 1).samples(&plan(READ, 2, 20));
        for sample in &samples {
            let found = sample.bytes.get() / median(sample);
            assert!((found / 72e9 - 1.0).abs() < 0.02, "{found}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_samples() {
        let run = |seed| Fake::new(Truth::default(), seed).samples(&plan(READ, 1, 5));
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn a_moving_clock_shows_in_the_operating_points_of_its_step_alone() {
        let mut fake = Fake::new(Truth::default(), 1);
        fake.disturbances = vec![Disturbance::ClockMoves { step: 1, before: 1.0, after: 0.7 }];
        let samples = fake.samples(&plan(Kernel::Peak { precision: Precision::Fp32 }, 1, 3));
        let moved = |sample: &Sample| sample.after.clock.effective / sample.before.clock.effective;
        assert!((moved(&samples[0]) - 1.0).abs() < 0.01);
        assert!((moved(&samples[1]) - 0.7).abs() < 0.01);
        assert!((median(&samples[1]) / median(&samples[2]) - 1.0 / 0.85).abs() < 0.03);
    }

    #[test]
    fn a_regime_flip_lasts() {
        let mut fake = Fake::new(Truth::default(), 1);
        fake.disturbances = vec![Disturbance::RegimeFlipsDuring { step: 0, regime: 1 }];
        let samples = fake.samples(&plan(READ, 2, 2));
        assert!(samples[0].before.reference.read.get() > 1.5 * samples[0].after.reference.read.get());
        assert!(samples[1].bytes.get() / median(&samples[1]) < 45e9);
    }

    #[test]
    fn what_the_machine_lacks_is_skipped() {
        let mut fake = Fake::new(Truth::default(), 1);
        let step = |kernel, threads| Step { kernel, threads, budget_s: 0.01 };
        for step in
            [step(Kernel::Peak { precision: Precision::Fp4 }, 1), step(READ, 3), step(Kernel::PingPong, 1)]
        {
            assert!(matches!(fake.measure(&step, &|| false), Outcome::Skipped(_)));
        }
    }
}
