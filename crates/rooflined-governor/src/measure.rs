//! Measurements of single operations and models, predicted vs. measured.

use super::calibrate::probe_failed;
use super::effects::{busy, refuse, reply};
use super::job::{MeasurementRequest, Measuring, Purpose};
use super::metering::{Metering, meter_period};
use super::{Effect, Governor, Measured, MeasuredSet, ModelWork, Now, Reply, Subject};
use rooflined_core::ceilings::{Roofline, scaling};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::Code;
use rooflined_core::units::Bytes;
use rooflined_models::transformer::Request;
use rooflined_predict::calibration::{
    Accelerator, FORWARD_KV_CACHE, ForwardModel, Kernel, PlanContext, Sample, centre, least_disturbed,
    measurable, measurement_plan, regime_key, vet,
};
use rooflined_predict::own_kernels::predict_step;
use rooflined_predict::snapshot::ReferenceReading;
use rooflined_predict::{EngineProfile, Prediction, predict};

/// Two references of the same memory system differ by about this much; a smaller drift says nothing.
const REFERENCE_REPEATABILITY: f64 = 0.1;
/// Most operations that one request may ask for.
const MAX_OPERATIONS: usize = 64;

impl ModelWork {
    /// What the forward pass here does, for the predictor: vectors in fp32, keys and values in fp16.
    const fn request(&self) -> Request {
        Request {
            batch: self.batch,
            activations: WeightFormat::Fp32,
            kv_cache: FORWARD_KV_CACHE,
            ..Request::decode(self.context_tokens)
        }
    }
}

impl Governor {
    /// A model as the probe runs it and the memory that this takes, or why it cannot be run now.
    fn runnable(&self, work: &ModelWork, context: &PlanContext) -> Result<(ForwardModel, u64), String> {
        let name = &work.model.name;
        let model =
            ForwardModel::new(&work.model, self.accelerator).map_err(|error| format!("{name}: {error}"))?;
        model.check(work.batch, work.context_tokens).map_err(|problem| format!("{name}: {problem}"))?;
        if self.accelerator == Accelerator::Gpu {
            model.check_gpu(work.batch).map_err(|problem| format!("{name}: {problem}"))?;
        }
        #[expect(clippy::cast_precision_loss, reason = "bytes of a cache")]
        let reference = Bytes(4.0 * context.last_level_cache_bytes as f64);
        let needed = model.memory(work.batch, work.context_tokens, context.threads) + reference;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let whole = |bytes: Bytes| bytes.get() as u64;
        // A card has memory of its own, of which the probe takes what is free.
        if self.accelerator == Accelerator::Gpu && !self.board.unified_memory {
            return Ok((model, whole(needed)));
        }
        let Some(memory) = self.state.memory.known() else {
            return Err(format!("{name}: needs {needed}, and how much memory is available is not known"));
        };
        let reserve = self.policy.min_free_memory;
        if needed + reserve <= memory.available {
            return Ok((model, whole(needed)));
        }
        // On a GPU layers alike may share memory; whether what is left suffices for that, the probe finds out.
        if self.accelerator == Accelerator::Gpu && memory.available > reserve {
            return Ok((model, whole(memory.available - reserve)));
        }
        Err(format!(
            "{name}: batch {} after {} tokens needs {needed}, and {} are available of which {reserve} stay free; \
             take a smaller model, format, batch or context, or end other programs",
            work.batch, work.context_tokens, memory.available
        ))
    }

    pub(super) fn measure_requested(
        &mut self,
        now: Now,
        MeasurementRequest { ticket, power }: MeasurementRequest,
        work: &[(Op, WeightFormat)],
        models: Vec<Result<ModelWork, String>>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(job) = &self.job {
            let what = match job.purpose {
                Purpose::Calibrate(_) => "a calibration",
                Purpose::Measure(_) => "a measurement",
            };
            return busy(effects, ticket, what);
        }
        if work.len() + models.len() > MAX_OPERATIONS {
            let count = work.len() + models.len();
            let message = format!("{count} operations are more than {MAX_OPERATIONS}");
            return refuse(effects, ticket, Code::TooMany.error(message, "ask in parts"));
        }
        if let Some(refusal) = self.no_probe() {
            return refuse(effects, ticket, refusal);
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
                Ok(kernel) => runnable.push((Subject::Op(op, format), kernel)),
                Err(reason) => skipped.push(reason),
            }
        }
        let mut context = self.plan_context();
        let mut runs: Vec<ForwardModel> = Vec::new();
        let models_asked = !models.is_empty();
        for asked in models {
            let run = asked.and_then(|work| Ok((self.runnable(&work, &context)?, work)));
            match run {
                Ok(((model, memory), work)) => {
                    let place = runs.iter().position(|known| *known == model).unwrap_or_else(|| {
                        runs.push(model);
                        runs.len() - 1
                    });
                    let (batch, context_tokens) = (work.batch, work.context_tokens);
                    let model = u32::try_from(place).unwrap_or(u32::MAX);
                    // A calibration is held to its own limit; a model takes what it takes, or is not run.
                    context.memory_limit_bytes = context.memory_limit_bytes.max(memory);
                    runnable.push((Subject::Model(work), Kernel::Forward { model, batch, context_tokens }));
                }
                Err(reason) => skipped.push(reason),
            }
        }
        if runnable.is_empty() && models_asked {
            let hint = "the message says why; rooflinectl models inspect shows what a file holds";
            return refuse(effects, ticket, Code::UnsupportedWorkload.error(skipped.join("; "), hint));
        }
        if runnable.is_empty() {
            return reply(effects, ticket, Reply::Measured(MeasuredSet { rows: Vec::new(), skipped }));
        }
        let kernels: Vec<Kernel> = runnable.iter().map(|(_, kernel)| *kernel).collect();
        let mut plan = measurement_plan(&kernels, runs, &context);
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
        effects.push(Effect::StartProbe { job, plan });
        self.publish(now, effects);
    }

    pub(super) fn measured(
        &mut self,
        run: Measuring,
        outcome: Result<(), String>,
        effects: &mut Vec<Effect>,
    ) {
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
            return refuse(effects, ticket, probe_failed(&format!("the probe failed: {reason}")));
        }
        let mut rows = Vec::new();
        for (subject, kernel) in work {
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
            match self.beside(&subject, sample) {
                Some(row) => {
                    let power = metering.as_ref().map(|metering| metering.of(kernel, centre(&sample.times)));
                    rows.push(Measured { power, ..row });
                }
                None => {
                    skipped.push(format!("{}: measured, but it cannot be predicted here", kernel.describe()));
                }
            }
        }
        reply(effects, ticket, Reply::Measured(MeasuredSet { rows, skipped }));
    }

    /// Puts a sample beside its predictions: from the calibration alone, and for the memory system as the reference
    /// reads beside the sample saw it.
    fn beside(&self, subject: &Subject, sample: &Sample) -> Option<Measured> {
        let snapshot = self.snapshot();
        let at = |roofline: &Roofline, profile: &EngineProfile| -> Option<Prediction> {
            match subject {
                Subject::Op(op, format) => {
                    predict(roofline, profile, op, &snapshot.numeric_format(*format)).ok()
                }
                Subject::Model(work) => predict_step(roofline, profile, &work.model, &work.request()).ok(),
            }
        };
        // A calibration beside other work may have left cores to it.
        let on_all = |roofline: &Roofline| scaling::to_clock(roofline, sample.threads, roofline.clock);
        let reference = sample.reference();
        let row = |regime: String, predicted, predicted_at_calibration, drift_ratio| Measured {
            subject: subject.clone(),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixtures::{board, policy, sample, state};
    use crate::{Command, Event, Policy};
    use rooflined_core::refusal::Refusal;
    use rooflined_core::units::Seconds;
    use rooflined_models::recipe::Recipe;
    use rooflined_models::registry::models;
    use rooflined_predict::calibration::ProbeEvent;
    use rooflined_predict::learning::Residuals;

    const AT: Now = Now { boottime: Seconds(1.0), unix_s: 1e9 };

    fn governor() -> Governor {
        let policy = Policy { automatic: false, ..policy() };
        Governor::new(AT, board(), state(), None, Residuals::default(), &policy)
    }

    fn work(format: WeightFormat, batch: u64, context_tokens: u64) -> ModelWork {
        let model = models().get("tinyllama-1.1b").unwrap().model(Recipe::of(format));
        ModelWork {
            reference: "tinyllama-1.1b".into(),
            format: Some(format),
            model: Arc::new(model),
            batch,
            context_tokens,
        }
    }

    fn asked(governor: &mut Governor, models: Vec<Result<ModelWork, String>>) -> Vec<Effect> {
        governor.handle(
            AT,
            Event::Requested {
                ticket: 3,
                command: Command::Measure { work: Vec::new(), models, power: false },
            },
        )
    }

    fn refusal(effects: &[Effect]) -> &str {
        match effects {
            [
                Effect::Reply {
                    ticket: 3,
                    reply: Reply::Refused(Refusal { code: Code::UnsupportedWorkload, message, .. }),
                },
            ] => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_step_of_a_model_is_put_beside_its_prediction() {
        let mut governor = governor();
        let two = [1, 8].map(|batch| Ok(work(WeightFormat::Bf16, batch, 1024)));
        let effects = asked(&mut governor, two.to_vec());
        let Some(Effect::StartProbe { job, plan }) = effects.first() else { panic!("{effects:?}") };
        assert_eq!(plan.models.len(), 1, "what differs in the batch alone is one model");
        assert_eq!(plan.steps.len(), 2);
        assert!(
            plan.memory_limit_bytes > 2 << 30,
            "more than a calibration may have: {}",
            plan.memory_limit_bytes
        );
        for step in &plan.steps {
            let event = Box::new(ProbeEvent::Sample(Box::new(sample(step, 1.0, 50e-9))));
            governor.handle(AT, Event::Probe { job: *job, event });
        }
        let finished = ProbeEvent::Finished { wall: Seconds(1.0), cut_short: None };
        governor.handle(AT, Event::Probe { job: *job, event: Box::new(finished) });
        let effects = governor.handle(AT, Event::ProbeEnded { job: *job, outcome: Ok(()) });
        let rows = effects.iter().find_map(|effect| match effect {
            Effect::Reply { reply: Reply::Measured(set), .. } => Some(&set.rows),
            _ => None,
        });
        let rows = rows.unwrap();
        assert_eq!(rows.len(), 2);
        assert!(rows[0].predicted.time.value < rows[1].predicted.time.value, "eight sequences take longer");
        assert!(matches!(&rows[1].subject, Subject::Model(work) if work.batch == 8));
    }

    #[test]
    fn a_gpu_runs_models_in_its_own_formats_and_sizes() {
        let on_gpu = |work, available: f64, unified| {
            let mut governor = governor();
            governor.accelerator = Accelerator::Gpu;
            governor.board.unified_memory = unified;
            if let rooflined_core::board::Reading::Known(memory) = &mut governor.state.memory {
                memory.available = Bytes(available);
            }
            asked(&mut governor, vec![Ok(work)])
        };
        let plan = |effects: &[Effect]| match effects.first() {
            Some(Effect::StartProbe { plan, .. }) => plan.clone(),
            other => panic!("{other:?}"),
        };
        let whole = plan(&on_gpu(work(WeightFormat::Nvfp4, 8, 1024), 8e9, true));
        assert!(matches!(whole.steps[0].kernel, Kernel::Forward { batch: 8, .. }));
        // 4.4 GB in fp32: the layers share what is there, and a card's memory is not the board's.
        let little = plan(&on_gpu(work(WeightFormat::Fp32, 1, 0), 3e9, true));
        assert!((little.memory_limit_bytes as f64) <= 2e9, "{}", little.memory_limit_bytes);
        let card = plan(&on_gpu(work(WeightFormat::Fp32, 1, 0), 3e9, false));
        assert!(card.memory_limit_bytes > 4_000_000_000, "{}", card.memory_limit_bytes);
        let many = on_gpu(work(WeightFormat::Fp16, 9, 0), 8e9, true);
        assert!(refusal(&many).contains("batch is 9") && refusal(&many).contains("up to 8"), "{many:?}");
        let stored = on_gpu(work(WeightFormat::Int4, 1, 0), 8e9, true);
        assert!(
            refusal(&stored).contains("no GPU kernel") && refusal(&stored).contains("nvfp4"),
            "{stored:?}"
        );
        let none = on_gpu(work(WeightFormat::Fp16, 1, 0), 0.5e9, true);
        assert!(refusal(&none).contains("stay free"), "{none:?}");
    }

    #[test]
    fn a_model_that_cannot_be_run_is_refused_with_the_reason() {
        let refused = |asking: Result<ModelWork, String>| {
            let mut governor = governor();
            refusal(&asked(&mut governor, vec![asking])).to_owned()
        };
        let large = refused(Ok(work(WeightFormat::Fp32, 64, 100_000)));
        assert!(large.contains("needs") && large.contains("available"), "{large}");
        let stored = refused(Ok(work(WeightFormat::Q4KM, 1, 0)));
        assert!(stored.contains("q4_k") || stored.contains("q6_k"), "{stored}");
        assert!(refused(Ok(work(WeightFormat::Fp16, 65, 0))).contains("batch is 65"));
        assert!(refused(Err("it is gone; look for it".into())).contains("it is gone"));
        let mut unknown = governor();
        unknown.state.memory = rooflined_core::board::Reading::absent("no /proc/meminfo");
        let effects = asked(&mut unknown, vec![Ok(work(WeightFormat::Fp16, 1, 0))]);
        assert!(refusal(&effects).contains("not known"));
    }
}
