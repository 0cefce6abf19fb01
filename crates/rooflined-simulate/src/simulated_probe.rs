//! The accelerator of a simulated board: samples from arithmetic, at the clocks that the board's tree shows.
//!
//! It says in `rooflined/load` what it does, so that the board ramps its clocks, draws power, gets hot and slows down,
//! and it reads the clocks back before and after each sample. Long runs are not waited for: what would take
//! seconds takes milliseconds, and only the governor's ramp is waited out, as on a board.

mod truth;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::kernel::{number, place, read};
use super::live::LOAD;
use super::simulated;
use super::spec::BOARDS;
use rooflined_core::units::{Bytes, Celsius, Flops, Hertz, Seconds};
use rooflined_predict::calibration::{Clock, Conditions, Held, Kernel, Plan, Reference, Sample, Step};
use rooflined_probe::{Outcome, Probe};
pub use truth::Truth;
use truth::{Cost, Point, Units};

/// Bytes of the file that says what the load is.
const LENGTH: usize = 128;
/// The reported load holds for this long, so that a killed probe does not heat the board for ever.
const HOLDS: f64 = 0.6;
/// A clock that has not moved for this long has reached its end; the board moves it more often.
const STABLE: Duration = Duration::from_millis(260);
/// Between two words of what runs while a load is held.
const SAY: Duration = Duration::from_millis(100);
/// The board must have had as many ticks meanwhile, for which it is waited longest.
const TICKS: u32 = 2;
const LATEST_TICK: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);
/// Longest wait for the clock.
const RAMP: Duration = Duration::from_millis(1500);
/// What a step really takes, whatever its budget.
const PACE: Duration = Duration::from_millis(12);
/// Runs of a sample, and the relative standard deviation of each.
const RUNS: usize = 21;
const NOISE: f64 = 0.004;
/// One run in this many is disturbed.
const OUTLIER: u32 = 40;
/// What harness and empty kernel cost; subtracted already.
const OVERHEAD: Seconds = Seconds(1.2e-6);

#[derive(Debug)]
pub struct Simulated {
    root: PathBuf,
    truth: &'static Truth,
    random: fastrand::Rng,
    /// Bytes that its buffers would take.
    memory_kib: u64,
    ramp: Duration,
    warm_until: f64,
}

impl Simulated {
    /// The accelerator of the board that is simulated in `root`.
    ///
    /// # Errors
    /// There is no simulated board, or its accelerator is not known.
    pub fn new(root: &Path, plan: &Plan) -> io::Result<Self> {
        let missing = |message: String| io::Error::new(io::ErrorKind::NotFound, message);
        let key =
            simulated(root).ok_or_else(|| missing(format!("{} holds no simulated board", root.display())))?;
        let spec = BOARDS.iter().find(|spec| spec.key == key);
        let truth = &spec.ok_or_else(|| missing(format!("{key} has no simulated accelerator")))?.accelerator;
        let ramp = Duration::try_from_secs_f64(plan.warm_up_s).unwrap_or(RAMP).clamp(RAMP / 2, RAMP);
        Ok(Self {
            root: root.to_owned(),
            truth,
            random: fastrand::Rng::with_seed(plan.seed),
            memory_kib: plan.memory_limit_bytes.min(1 << 30) >> 10,
            ramp,
            warm_until: 0.0,
        })
    }

    fn number(&self, path: &str) -> Option<f64> {
        number(&self.root, path)
    }

    /// What rates depend on, as the tree shows it now; `None` while the GPU is switched off.
    fn point(&self) -> Option<Point> {
        let truth = self.truth;
        let gpu = self.number(&truth.clock.0)? * truth.clock.1;
        // Peaks of the current take clock that no file shows.
        let lost = self.number("/rooflined/peaks").unwrap_or(0.0);
        let memory = truth.memory_clock.as_ref().map_or(Some(truth.memory_max), |path| self.number(path))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mask of eight bits")]
        let sm = match &truth.units {
            Units::Clusters(path) => {
                let gated = (self.number(path)? as u32 & 0xff).count_ones();
                (2 * 8_u32.saturating_sub(gated)).min(truth.sm)
            }
            Units::Gated(path, mask, left) if self.number(path)? == *mask => *left,
            Units::Gated(..) | Units::All => truth.sm,
        };
        let gpu = Hertz(gpu * (1.0 - lost));
        (gpu.is_positive() && memory > 0.0 && sm > 0).then_some(Point { sm, gpu, memory: Hertz(memory) })
    }

    /// Tells the board what runs from now on.
    fn say(&self, cost: &Cost) {
        let (gpu, memory) = (cost.core.max(0.15), cost.interface);
        let line = format!(
            "gpu {gpu:.3}\nmemory {memory:.3}\ncpu 0.080\nmemory_kib {}\nuntil_s {:.3}\n",
            self.memory_kib,
            boot_time() + HOLDS
        );
        self.write_load(&line);
    }

    /// A board whose load cannot be written stays cold, which shows in its clocks.
    fn write_load(&self, text: &str) {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(place(&self.root, LOAD));
        // Always of one length, in one write: a reader finds the old text or the new one.
        let _ = file.and_then(|file| file.write_all_at(format!("{text:<LENGTH$}").as_bytes(), 0));
    }

    /// Waits for the governors, which see the load only once it is there. They move at the board's ticks, which come late on a
    /// machine whose processors others take: clocks that stand still between two of them are not settled yet.
    fn warm_up(&mut self, cost: &Cost, stop: &dyn Fn() -> bool) {
        let cold = boot_time() > self.warm_until;
        let (began, mut moved, mut said) = (Instant::now(), Instant::now(), Instant::now());
        let (mut last, mut tick, mut ticks) = (self.point(), self.tick(), 0);
        let settled = |moved: Instant, ticks| moved.elapsed() >= STABLE && ticks >= TICKS;
        while cold && !settled(moved, ticks) && !stop() {
            let limit = if ticks < TICKS { LATEST_TICK } else { self.ramp };
            if began.elapsed() >= limit {
                break;
            }
            if said.elapsed() >= SAY {
                self.say(cost);
                said = Instant::now();
            }
            thread::sleep(LOOK);
            let (now, now_tick) = (self.point(), self.tick());
            if now_tick != tick {
                (tick, ticks) = (now_tick, ticks + 1);
            }
            if now != last {
                (last, moved, ticks) = (now, Instant::now(), 0);
            }
        }
        self.warm_until = boot_time() + HOLDS / 2.0;
    }

    /// What every tick of the board changes.
    fn tick(&self) -> Option<String> {
        read(&self.root, "/proc/stat")
    }

    /// Normal with mean 0 and variance 1, near enough: a sum of twelve uniform numbers.
    fn gaussian(&mut self) -> f64 {
        (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
    }

    fn conditions(&mut self, point: &Point) -> Conditions {
        let wobble = 1.0 - NOISE * self.gaussian().abs();
        let zone = &self.truth.zone;
        let effective = point.gpu * (1.0 + 0.0005 * self.gaussian());
        Conditions {
            clock: Clock { effective, reported: Some(point.gpu) },
            reference: Reference {
                read: self.truth.dram(point, f64::from(point.sm)) * wobble,
                core_to_core: None,
            },
            steal_ratio: None,
            temperature: self.number(&zone.0).map(|value| Celsius(value * zone.1)),
        }
    }

    fn times(&mut self, time: Seconds) -> Vec<Seconds> {
        (0..RUNS)
            .map(|_| {
                // Disturbances only ever slow a run down; the floor keeps noise from beating physics.
                let mut factor = (1.0 + NOISE * self.gaussian()).max(1.0 - 2.0 * NOISE);
                if self.random.u32(..OUTLIER) == 0 {
                    factor *= 1.0 + self.random.f64();
                }
                time * factor
            })
            .collect()
    }
}

impl Probe for Simulated {
    fn measure(&mut self, step: &Step, stop: &dyn Fn() -> bool) -> Outcome {
        let idle = Point { sm: self.truth.sm, gpu: Hertz(1e9), memory: Hertz(self.truth.memory_max) };
        let point = self.point();
        let cost =
            match self.truth.cost(step, &point.map_or(idle, |point| Point { gpu: Hertz(1e9), ..point })) {
                Ok(cost) => cost,
                Err(reason) => return Outcome::Skipped(reason),
            };
        self.say(&cost);
        self.warm_up(&cost, stop);
        if stop() {
            return Outcome::Stopped;
        }
        self.say(&cost);
        let Some(first) = self.point() else {
            return Outcome::Skipped("the GPU's clock cannot be read: it stays switched off".to_owned());
        };
        let before = self.conditions(&first);
        thread::sleep(PACE);
        let Some(last) = self.point() else { return Outcome::Stopped };
        let after = self.conditions(&last);
        let middle =
            Point { gpu: (first.gpu + last.gpu) / 2.0, memory: (first.memory + last.memory) / 2.0, ..last };
        // The mode may have changed since the step was looked at.
        let cost = match self.truth.cost(step, &middle) {
            Ok(cost) => cost,
            Err(reason) => return Outcome::Skipped(reason),
        };
        let has_result =
            matches!(step.kernel, Kernel::Gemv { .. } | Kernel::Gemm { .. } | Kernel::Peak { .. });
        Outcome::Measured(Box::new(Sample {
            kernel: step.kernel,
            threads: step.threads,
            isa: self.truth.isa.clone(),
            flops: cost.flops,
            bytes: cost.bytes,
            weights: cost.weights,
            times: self.times(cost.time),
            overhead: OVERHEAD,
            max_error_ratio: has_result.then_some(2e-7),
            waiting_ratio: None,
            left_out: 0,
            corrected_ratio: 0.0,
            other_work: None,
            before,
            after,
        }))
    }

    fn hold(&mut self, step: &Step, length: Duration, stop: &dyn Fn() -> bool) -> Result<Held, String> {
        let off = || "the GPU's clock cannot be read: it stays switched off".to_owned();
        let idle = Point { sm: self.truth.sm, gpu: Hertz(1e9), memory: Hertz(self.truth.memory_max) };
        let point = self.point().map_or(idle, |point| Point { gpu: Hertz(1e9), ..point });
        let cost = self.truth.cost(step, &point)?;
        self.say(&cost);
        self.warm_up(&cost, stop);
        let (began, start) = (rooflined_hw::boot_time(), Instant::now());
        let (mut flops, mut bytes, mut weights) = (Flops(0.0), Bytes(0.0), 0.0);
        let mut last = began;
        while start.elapsed() < length && !stop() {
            let cost = self.truth.cost(step, &self.point().ok_or_else(off)?)?;
            self.say(&cost);
            thread::sleep(SAY.min(length.saturating_sub(start.elapsed())));
            let now = rooflined_hw::boot_time();
            let runs = (now - last) / cost.time;
            flops += cost.flops * runs;
            bytes += cost.bytes * runs;
            weights += cost.weights * runs;
            last = now;
        }
        let ended = rooflined_hw::boot_time();
        self.warm_until = ended.get() + HOLDS / 2.0;
        let zone = &self.truth.zone;
        let temperature = self.number(&zone.0).map(|value| Celsius(value * zone.1));
        Ok(Held { kernel: Some(step.kernel), began, ended, flops, bytes, weights, temperature })
    }
}

impl Drop for Simulated {
    /// The load ends with the probe.
    fn drop(&mut self) {
        self.write_load("until_s 0\n");
    }
}

fn boot_time() -> f64 {
    rooflined_hw::boot_time().get()
}
