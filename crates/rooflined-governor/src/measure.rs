//! Measurements of single operations, predicted vs. measured.

use super::calibrate::probe_failed;
use super::job::{MeasurementRequest, Measuring, Purpose};
use super::metering::{Metering, meter_period};
use super::{Effect, Governor, Measured, MeasuredSet, Reply};
use rooflined_core::ceilings::{Roofline, scaling};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::Code;
use rooflined_predict::calibration::{
    Accelerator, Kernel, Sample, centre, least_disturbed, measurable, measurement_plan, regime_key, vet,
};
use rooflined_predict::snapshot::ReferenceReading;
use rooflined_predict::{EngineProfile, Prediction, predict};

/// Two references of the same memory system differ by about this much; a smaller drift says nothing.
const REFERENCE_REPEATABILITY: f64 = 0.1;
/// Most operations that one request may ask for.
const MAX_OPERATIONS: usize = 64;

impl Governor {
    pub(super) fn measure_requested(
        &mut self,
        MeasurementRequest { ticket, power }: MeasurementRequest,
        work: &[(Op, WeightFormat)],
    ) {
        if let Some(job) = &self.job {
            let what = match job.purpose {
                Purpose::Calibrate(_) => "a calibration",
                Purpose::Measure(_) => "a measurement",
            };
            return self.effects.busy(ticket, what);
        }
        if work.len() > MAX_OPERATIONS {
            let message = format!("{} operations are more than {MAX_OPERATIONS}", work.len());
            return self.effects.refuse(ticket, Code::TooMany.error(message, "ask in parts"));
        }
        if let Some(refusal) = self.no_probe() {
            return self.effects.refuse(ticket, refusal);
        }
        let mut skipped = Vec::new();
        let mut runnable = Vec::new();
        // A card has memory of its own, of which the probe takes what is free.
        let shared = self.accelerator == Accelerator::Cpu || self.board.unified_memory;
        let most = self.state.memory.known().filter(|_| shared).map(|memory| memory.total);
        for &(op, format) in work {
            let moved = op.cost(&self.snapshot.numeric_format(format)).traffic;
            if let Some(most) = most.filter(|most| moved > *most) {
                skipped.push(format!("{moved} in {format} are more than the memory of this machine, {most}"));
                continue;
            }
            match measurable(&op, format, self.accelerator) {
                Ok(kernel) => runnable.push(((op, format), kernel)),
                Err(reason) => skipped.push(reason),
            }
        }
        if runnable.is_empty() {
            return self.effects.reply(ticket, Reply::Measured(MeasuredSet { rows: Vec::new(), skipped }));
        }
        let kernels: Vec<Kernel> = runnable.iter().map(|(_, kernel)| *kernel).collect();
        let mut plan = measurement_plan(&kernels, &self.plan_context());
        let metering = power.then(|| match meter_period(&self.state, self.accelerator) {
            Ok(period) => {
                plan.hold_steps(period);
                Metering::default()
            }
            Err(why) => Metering::without(why),
        });
        let job = self.start_job(Purpose::Measure(Box::new(Measuring {
            ticket,
            work: runnable,
            samples: Vec::new(),
            skipped,
            finished: None,
            metering,
        })));
        self.effects.push(Effect::StartProbe { job, plan });
        self.publish();
    }

    pub(super) fn measured(&mut self, run: Measuring, outcome: Result<(), String>) {
        let Measuring { ticket, work, samples, mut skipped, finished, metering } = run;
        let failure = match (outcome, finished) {
            (Err(reason), _) => Some(reason),
            (Ok(()), None) => Some("the probe ended before it was done".to_owned()),
            (Ok(()), Some(cut_short)) => {
                skipped.extend(cut_short.map(|reason| format!("the rest: {reason}")));
                None
            }
        };
        if let Some(reason) = failure {
            return self.effects.refuse(ticket, probe_failed(&format!("the probe failed: {reason}")));
        }
        let mut rows = Vec::new();
        for (asked, kernel) in work {
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
            match self.beside(asked, sample) {
                Some(row) => {
                    let power = metering.as_ref().map(|metering| metering.of(kernel, centre(&sample.times)));
                    rows.push(Measured { power, ..row });
                }
                None => {
                    skipped.push(format!("{}: measured, but it cannot be predicted here", kernel.describe()));
                }
            }
        }
        self.effects.reply(ticket, Reply::Measured(MeasuredSet { rows, skipped }));
    }

    /// Puts a sample beside its predictions: from the calibration alone, and for the memory system as the reference
    /// reads beside the sample saw it.
    fn beside(&self, (op, format): (Op, WeightFormat), sample: &Sample) -> Option<Measured> {
        let snapshot = self.snapshot();
        let numeric = snapshot.numeric_format(format);
        let at = |roofline: &Roofline, profile: &EngineProfile| -> Option<Prediction> {
            predict(roofline, profile, &op, &numeric).ok()
        };
        // A calibration beside other work may have left cores to it.
        let on_all = |roofline: &Roofline| scaling::to_clock(roofline, sample.threads, roofline.clock);
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
            power: None,
        };
        if self.accelerator == Accelerator::Gpu {
            let predicted = at(&snapshot.roofline, &snapshot.profile)?;
            let mode =
                self.state.power_mode.known().map_or_else(|| "gpu".to_owned(), |mode| mode.name.clone());
            let drift = snapshot.drift_of(&ReferenceReading::new(snapshot.taken_at, reference, &self.state));
            return Some(row(mode, predicted.clone(), predicted, drift));
        }
        let calibrated =
            self.record.as_ref().and_then(|record| Some((record.current()?, record.under(&reference)?)));
        let Some((current, (regime, drift))) = calibrated else {
            let predicted = at(&snapshot.roofline, &snapshot.profile)?;
            return Some(row(regime_key(&reference).to_owned(), predicted.clone(), predicted, None));
        };
        let at_calibration = at(&on_all(&current.roofline), &current.profile)?;
        let drift = if (drift - 1.0).abs() < REFERENCE_REPEATABILITY { 1.0 } else { drift };
        let now = at(&on_all(&regime.roofline), &regime.profile.with_bandwidth_drift(drift))?;
        Some(row(regime.key, now, at_calibration, Some(reference.read / current.reference.read)))
    }
}
