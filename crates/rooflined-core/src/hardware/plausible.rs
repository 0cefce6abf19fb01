//! Plausibility checks of a well-formed hardware entry against physics and known parts.

use super::registry::Registry;
use super::{Hardware, Kind};
use crate::precision::Precision;

/// Bandwidth and bus x clock are the same figure; data sheets round it.
const ROUNDING: f64 = 0.01;
/// Between the FLOP and the byte, every part ever sold lies here at 16 bits.
const RIDGE_FP16: std::ops::RangeInclusive<f64> = 4.0..=2000.0;
/// The same for FP32 without matrix units.
const RIDGE_FP32: std::ops::RangeInclusive<f64> = 1.0..=400.0;
/// A step to half as many bits doubles the dense rate; more than this is a figure with sparsity.
const STEP: f64 = 2.05;
/// But for FP4 on Blackwell Ultra, whose dense rate is three times that of FP8.
const ULTRA: ((u32, u32), Precision, f64) = ((10, 3), Precision::Fp4, 3.05);

impl Hardware {
    /// What looks wrong about it beside the entries of `known`, in sentences; empty for a plausible entry.
    #[must_use]
    pub fn implausible(&self, known: &Registry) -> Vec<String> {
        if self.kind == Kind::Cpu {
            return Vec::new();
        }
        let mut doubts = Vec::new();
        doubts.extend(self.bandwidth_doubt());
        doubts.extend(self.rate_doubts(known));
        doubts.extend(self.ridge_doubt());
        doubts.extend(self.pull_doubt());
        doubts
    }

    fn bandwidth_doubt(&self) -> Option<String> {
        let clock = self.memory_clock?;
        let physical = self.memory_bandwidth(Some(clock));
        let ratio = self.bandwidth / physical;
        if (ratio - 1.0).abs() <= ROUNDING {
            return None;
        }
        let mut doubt = format!(
            "bandwidth_bytes_per_s is {}, but {} bit x 2 x {clock} is {physical}",
            self.bandwidth, self.bus_bits
        );
        if (ratio - 2.0).abs() < 0.05 || (ratio - 0.5).abs() < 0.02 {
            doubt.push_str(": memory_clock_hz is half of the data rate, which is often printed as a clock");
        }
        Some(doubt)
    }

    fn rate_doubts(&self, known: &Registry) -> Vec<String> {
        let relatives: Vec<&Hardware> = known
            .entries()
            .filter(|entry| {
                self.compute_capability.is_some() && entry.compute_capability == self.compute_capability
            })
            .collect();
        let mut doubts = Vec::new();
        for (precision, rate) in &self.rates {
            let name = format!("flops_per_sm_clock.{precision}");
            let peak = rate * f64::from(self.sm) * self.gpu_clock.get();
            let advertised = self.marketing.get(&format!("{precision}_sparse_ops_per_s"));
            if advertised.is_some_and(|sparse| (peak / sparse - 1.0).abs() < 0.03) {
                doubts.push(format!(
                    "{name} gives the figure that [marketing] calls sparse; the dense rate is half"
                ));
                continue;
            }
            let rates = relatives.iter().filter_map(|entry| Some((entry.rates.get(precision)?, &entry.key)));
            let highest = rates.max_by(|a, b| a.0.total_cmp(b.0));
            match highest {
                Some((most, key)) if (rate / most - 2.0).abs() < 0.02 => doubts.push(format!(
                    "{name} is exactly twice the {most} of {key}: that looks like the rate with sparsity"
                )),
                Some((most, key)) if *rate > most * 1.01 => {
                    doubts.push(format!(
                        "{name} is above the {most} of {key}, which has the same compute capability"
                    ));
                }
                None if !relatives.is_empty() => {
                    doubts.push(format!(
                        "{name}: no known part of this compute capability has a unit for {precision}"
                    ));
                }
                _ => {}
            }
        }
        if relatives.is_empty() {
            doubts.extend(self.step_doubts());
        }
        doubts
    }

    /// Where nothing alike is known: each step to half as many bits at most doubles the rate.
    fn step_doubts(&self) -> Vec<String> {
        const STEPS: &[(Precision, Precision)] = &[
            (Precision::Tf32, Precision::Fp16),
            (Precision::Fp16, Precision::Fp8),
            (Precision::Fp16, Precision::Int8),
            (Precision::Fp8, Precision::Fp4),
            (Precision::Int8, Precision::Int4),
        ];
        let rate = |precision| self.rates.get(&precision);
        let steps = STEPS.iter().filter_map(|(wide, narrow)| {
            let ratio = rate(*narrow)? / rate(*wide)?;
            let (ultra, fp4, most) = ULTRA;
            let is_ultra = self.compute_capability == Some(ultra) && *narrow == fp4;
            (ratio > if is_ultra { most } else { STEP }).then(|| {
                format!("flops_per_sm_clock.{narrow} is {ratio:.1} times that of {wide}; a dense rate doubles at most")
            })
        });
        steps.collect()
    }

    fn ridge_doubt(&self) -> Option<String> {
        let (precision, range) = match self.rates.contains_key(&Precision::Fp16) {
            true => (Precision::Fp16, RIDGE_FP16),
            false => (Precision::Fp32, RIDGE_FP32),
        };
        let peak = self.rates.get(&precision)? * f64::from(self.sm) * self.gpu_clock.get();
        let ridge = peak / self.bandwidth.get();
        (!range.contains(&ridge)).then(|| {
            format!(
                "the ridge point at {precision} would be {ridge:.3} FLOP/B, outside {} to {}: is a unit wrong?",
                range.start(),
                range.end()
            )
        })
    }

    fn pull_doubt(&self) -> Option<String> {
        let pull = self.sm_pull?.high * f64::from(self.sm) * self.gpu_clock.get();
        (pull < 0.5 * self.bandwidth.get()).then(|| {
            format!(
                "sm_pull lets all SMs pull {:.3} GB/s at most, less than half of the memory's {}",
                pull / 1e9,
                self.bandwidth
            )
        })
    }
}
