//! Every kernel once, on shapes with odd ends: is what this GPU computes right?

use super::driver::{Arg, GpuError, guarded};
use super::kernels::{Peak, peaks};
use super::stored::Layout;
use super::{Cuda, POISON, WRONG, launch, stream};
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_predict::calibration::{GemvCase, Kernel, Step, Stores, Stream};

/// Largest deviation from the reference, relative to the largest value, of a result that is right; as in a calibration.
pub const TOLERANCE: f64 = 0.02;

/// More than any chain of a thousand instructions takes.
const MOST_CYCLES: u64 = 1 << 32;

#[derive(Debug, Clone, Copy)]
enum Check {
    /// Whether it comes to an end.
    Empty,
    /// Whether it tells the cycles that passed.
    Spin,
    Stream(Stream),
    /// A read from the second-level cache.
    Cached,
    Fp32,
    Peak(Precision, Peak),
    /// With so many vectors.
    Gemv(WeightFormat, u64),
}

fn checks() -> Vec<(String, Check)> {
    let streams = [Stream::Read, Stream::Write, Stream::Copy, Stream::Triad];
    let mut checks = vec![("empty".to_owned(), Check::Empty), ("spin".to_owned(), Check::Spin)];
    checks.extend(streams.map(|pattern| (stream::entry_of(pattern).to_owned(), Check::Stream(pattern))));
    checks.push(("l2_read".to_owned(), Check::Cached));
    checks.push(("fma_f32".to_owned(), Check::Fp32));
    for &precision in &Precision::ALL {
        checks.extend(
            peaks(precision).iter().map(|peak| (peak.entry.to_owned(), Check::Peak(precision, *peak))),
        );
    }
    for &format in &WeightFormat::ALL {
        let Some(layout) = Layout::of(format) else { continue };
        let batches = [1, 2, 4, 8];
        checks.extend(batches.map(|b| (format!("gemv_{}_b{b}", layout.name), Check::Gemv(format, b))));
    }
    checks
}

/// What can be verified, by name.
pub fn entries() -> Vec<String> {
    checks().into_iter().map(|(entry, _)| entry).collect()
}

impl Cuda {
    /// Runs a kernel of this program once; its largest deviation from a reference in double precision, relative to the
    /// largest value.
    pub fn verify(&mut self, entry: &str) -> Result<f64, GpuError> {
        let all = checks();
        let Some((_, check)) = all.iter().find(|(name, _)| name == entry) else {
            return Err(GpuError::Step(format!("there is no kernel {entry}")));
        };
        guarded(|| self.deviation_of(*check))
    }

    fn deviation_of(&mut self, check: Check) -> Result<f64, GpuError> {
        let (threads, l2) = (self.device.facts().sm_count, self.l2_bytes());
        let step = |kernel| Step { kernel, threads, budget_s: 1.0 };
        let stores = Stores::Temporal;
        let job = match check {
            Check::Empty => {
                let job = self.empty()?;
                let launches: Vec<_> = job.runs.into_iter().flatten().collect();
                return self.device.run(&launches).map(|_| 0.0);
            }
            Check::Spin => return self.spun(),
            Check::Stream(pattern) => {
                // Neither a whole number of blocks nor of the pattern; large enough to be no cached read.
                let bytes = 12 * l2 + 48 * 1237;
                self.stream(&step(Kernel::Stream { pattern, bytes, stores }), pattern, bytes)
            }
            Check::Cached => {
                let (pattern, bytes) = (Stream::Read, l2 / 2 + 16 * 3);
                self.stream(&step(Kernel::Stream { pattern, bytes, stores }), pattern, bytes)
            }
            Check::Fp32 => {
                let precision = Precision::Fp32;
                self.peak(&step(Kernel::Peak { precision }), precision)
            }
            Check::Peak(precision, peak) => {
                self.tensor_peak(&step(Kernel::Peak { precision }), precision, peak)
            }
            Check::Gemv(format, columns) => {
                // More rows than the reference repeats, and a row length that is padded.
                let (n, k, case) = (1003, 1000, GemvCase::Cache);
                self.gemv(&step(Kernel::Gemv { n, k, columns, format, case }), (n, k, columns), format, case)
            }
        }?;
        job.error.ok_or_else(|| GpuError::Step("it has no result that could be compared".into()))
    }

    /// 0 where a longer chain of instructions takes more cycles than a shorter one.
    fn spun(&mut self) -> Result<f64, GpuError> {
        let (function, entry) = self.kernel("spin")?;
        let out = self.device.allocate(32)?;
        let cycles = |iterations: u32| -> Result<u64, GpuError> {
            out.set(POISON)?;
            self.device.run(&[launch(function, entry, 1, vec![out.at(0), Arg::U32(iterations)])])?;
            Ok(u64::from_le_bytes(out.read(0, 8)?.try_into().unwrap_or_default()))
        };
        let (shorter, longer) = (cycles(100)?, cycles(1000)?);
        Ok(if 0 < shorter && shorter < longer && longer < MOST_CYCLES { 0.0 } else { WRONG })
    }
}
