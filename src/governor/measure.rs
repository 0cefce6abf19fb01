//! Single operations measured beside their predictions.

use super::core::{Purpose, reply};
use super::{Effect, Governor, Measured, MeasuredSet, Now, Reply, Ticket};
use crate::calibration::{
    Accelerator, Kernel, Sample, least_disturbed, measurable, measurement_plan, regime_key, vet,
};
use crate::precision::WeightFormat;
use crate::predict::{EngineProfile, Prediction, predict};
use crate::roofline::Roofline;
use crate::workload::Op;

/// Two references of the same memory system differ by about this much; a smaller drift says nothing.
const REFERENCE_REPEATABILITY: f64 = 0.1;
/// Most operations that one request may ask for.
const MAX_OPERATIONS: usize = 64;

/// A running measurement.
#[derive(Debug)]
pub(super) struct Measuring {
    pub(super) ticket: Ticket,
    work: Vec<(Op, WeightFormat, Kernel)>,
    pub(super) samples: Vec<Sample>,
    pub(super) skipped: Vec<String>,
    /// `Some` once the probe said it was done, with why it was cut short if it was.
    pub(super) finished: Option<Option<String>>,
}

pub(super) fn busy_reply(what: &str) -> Reply {
    Reply::Refused { code: "busy", message: format!("{what} is running; try again when it has ended") }
}

impl Governor {
    pub(super) fn measure_requested(
        &mut self,
        now: Now,
        ticket: Ticket,
        work: &[(Op, WeightFormat)],
        effects: &mut Vec<Effect>,
    ) {
        if let Some(job) = &self.job {
            let what = match job.purpose {
                Purpose::Calibrate(_) => "a calibration",
                Purpose::Measure(_) => "a measurement",
            };
            return super::core::busy(effects, ticket, what);
        }
        if work.len() > MAX_OPERATIONS {
            let message = format!("{} operations are more than {MAX_OPERATIONS}; ask in parts", work.len());
            return reply(effects, ticket, Reply::Refused { code: "too_many", message });
        }
        if let Some(message) = self.no_probe() {
            return reply(effects, ticket, Reply::Refused { code: "no_probe", message });
        }
        let mut skipped = Vec::new();
        let mut runnable = Vec::new();
        for &(op, format) in work {
            match measurable(&op, format, self.accelerator) {
                Ok(kernel) => runnable.push((op, format, kernel)),
                Err(reason) => skipped.push(reason),
            }
        }
        if runnable.is_empty() {
            return reply(effects, ticket, Reply::Measured(MeasuredSet { rows: Vec::new(), skipped }));
        }
        let kernels: Vec<Kernel> = runnable.iter().map(|(_, _, kernel)| *kernel).collect();
        let plan = measurement_plan(&kernels, &self.plan_context());
        let job = self.start_job(Purpose::Measure(Measuring {
            ticket,
            work: runnable,
            samples: Vec::new(),
            skipped,
            finished: None,
        }));
        effects.push(Effect::StartProbe { job, plan });
        self.publish(now, effects);
    }

    pub(super) fn measured(
        &mut self,
        run: Measuring,
        outcome: Result<(), String>,
        effects: &mut Vec<Effect>,
    ) {
        let Measuring { ticket, work, samples, mut skipped, finished } = run;
        let failure = match (outcome, finished) {
            (Err(reason), _) => Some(reason),
            (Ok(()), None) => Some("the probe ended before it was done".to_owned()),
            (Ok(()), Some(cut_short)) => {
                skipped.extend(cut_short.map(|reason| format!("the rest: {reason}")));
                None
            }
        };
        if let Some(reason) = failure {
            let message = format!("the probe failed: {reason}");
            return reply(effects, ticket, Reply::Refused { code: "probe_failed", message });
        }
        let mut rows = Vec::new();
        for (op, format, kernel) in work {
            // The probe measures again what the machine moved under.
            let Some(sample) = least_disturbed(samples.iter().filter(|sample| sample.kernel == kernel))
            else {
                continue;
            };
            if let Some(rejection) = vet(sample)
                .filter(|rejection| rejection.code == "wrong_result" || rejection.code == "no_runs")
            {
                skipped.push(format!("{}: {}", kernel.describe(), rejection.reason));
                continue;
            }
            match self.beside(op, format, sample) {
                Some(row) => rows.push(row),
                None => {
                    skipped.push(format!("{}: measured, but it cannot be predicted here", kernel.describe()));
                }
            }
        }
        reply(effects, ticket, Reply::Measured(MeasuredSet { rows, skipped }));
    }

    /// Puts a sample beside its predictions: from the calibration alone, and for the memory system as the reference
    /// reads beside the sample saw it.
    fn beside(&self, op: Op, format: WeightFormat, sample: &Sample) -> Option<Measured> {
        let snapshot = self.snapshot();
        let numeric = snapshot.numeric_format(format);
        let at = |roofline: &Roofline, profile: &EngineProfile| -> Option<Prediction> {
            predict(roofline, profile, &op, &numeric).ok()
        };
        let reference = sample.reference();
        let row = |regime: String, predicted, predicted_at_calibration, drift_ratio| Measured {
            op,
            format,
            sample: sample.clone(),
            regime,
            predicted,
            predicted_at_calibration,
            drift_ratio,
            disturbed: vet(sample).map(|rejection| format!("{}: {}", rejection.code, rejection.reason)),
        };
        if self.accelerator == Accelerator::Gpu {
            let predicted = at(&snapshot.roofline, &snapshot.profile)?;
            let mode =
                self.state.power_mode.known().map_or_else(|| "gpu".to_owned(), |mode| mode.name.clone());
            return Some(row(mode, predicted.clone(), predicted, None));
        }
        let calibrated =
            self.record.as_ref().and_then(|record| Some((record.current()?, record.under(&reference)?)));
        let Some((current, (regime, drift))) = calibrated else {
            let predicted = at(&snapshot.roofline, &snapshot.profile)?;
            return Some(row(regime_key(&reference).to_owned(), predicted.clone(), predicted, None));
        };
        let at_calibration = at(&current.roofline, &current.profile)?;
        let drift = if (drift - 1.0).abs() < REFERENCE_REPEATABILITY { 1.0 } else { drift };
        let now = at(&regime.roofline, &regime.profile.with_bandwidth_drift(drift))?;
        Some(row(regime.key, now, at_calibration, Some(reference.read / current.reference.read)))
    }
}
