//! Reports of services: learning from them and forgetting them.

use super::machine::machine_name;
use super::servers::Servers;
use super::{
    AuditEvent, AuditRecord, Effect, Governor, Now, Observed, RefusedObservation, Reply, ServerReport,
    Severity, SlowServers, StoreItem, Ticket,
};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::Seconds;
use rooflined_predict::learning::models::{Measured, ObservedRuns};
use rooflined_predict::learning::report::{Reporter, Selection};
use rooflined_predict::learning::reports::{Changed, Learnt, Reports};
use rooflined_predict::learning::{ResidualKey, Residuals};
use rooflined_predict::{Engine, predict};

/// Name of the degradation that an alarm of the learning is.
const CHANGED: &str = "changed";
/// Name of the degradation that a slow server is.
const SLOW_SERVER: &str = "server";

impl Governor {
    pub(super) fn observed(
        &mut self,
        ticket: Ticket,
        by: &Reporter,
        (observations, servers): (&[Observed], &[ServerReport]),
    ) {
        let (mut accepted, mut refused, mut outcomes) = (0, Vec::new(), Vec::new());
        let (mut models, mut positions) = (Vec::new(), Vec::new());
        let mut changed = Changed::default();
        for (index, observed) in observations.iter().enumerate() {
            let of_server = servers.iter().find(|report| report.index == index);
            if let Some(refusal) = of_server.and_then(|report| report.refusal.clone()) {
                refused.push(RefusedObservation { index, refusal });
                continue;
            }
            match observed {
                Observed::Op { engine, op, format, time } => {
                    match self.observed_op(by, (*engine, *op, *format), *time) {
                        Ok(learnt) => {
                            accepted += 1;
                            changed |= learnt;
                        }
                        Err(refusal) => refused.push(RefusedObservation { index, refusal }),
                    }
                }
                Observed::Network(run) => match self.learnt.observe_network(by, run, self.now.unix_s) {
                    Ok(Ok((learnt, outcome))) => {
                        accepted += 1;
                        changed |= learnt;
                        outcomes.push((index, outcome));
                    }
                    Ok(Err(error)) => {
                        refused.push(RefusedObservation { index, refusal: error.refusal("time_s") });
                    }
                    Err(refusal) => refused.push(RefusedObservation { index, refusal }),
                },
                Observed::Model(run) => {
                    models.push(Measured::clone(run));
                    positions.push(index);
                }
            }
        }
        if !models.is_empty() {
            match self.learnt.observe_runs(by, &models, self.now.unix_s) {
                Ok(learnt) => {
                    changed |= learnt.changed;
                    for (index, outcome) in positions.into_iter().zip(learnt.outcomes) {
                        match outcome {
                            Ok(outcome) => {
                                accepted += 1;
                                outcomes.push((index, outcome));
                            }
                            Err(error) => {
                                refused.push(RefusedObservation { index, refusal: error.refusal() });
                            }
                        }
                    }
                }
                Err(refusal) => {
                    let each = positions.into_iter();
                    refused.extend(each.map(|index| RefusedObservation { index, refusal: refusal.clone() }));
                }
            }
        }
        self.save(changed);
        refused.sort_by_key(|refused| refused.index);
        let slow = servers.iter().filter_map(|report| Some((report.index, report.slow.clone()?))).collect();
        for report in servers {
            let refused = refused.iter().find(|refused| refused.index == report.index);
            self.servers.report(self.now, report, refused.map(|refused| &refused.refusal));
        }
        self.note_slow_servers();
        outcomes.sort_by_key(|(index, _)| *index);
        self.effects.reply(ticket, Reply::Observed { accepted, refused, outcomes, slow });
    }

    /// Says that a server has become slow when that lasts, and when it is over.
    pub(super) fn note_slow_servers(&mut self) {
        self.servers.forget_old(self.now);
        if self.note_degraded(SLOW_SERVER, self.servers.lasting()) {
            self.effects.push(Effect::Save(StoreItem::Servers(self.servers.noticed())));
        }
    }

    fn observed_op(
        &mut self,
        by: &Reporter,
        (engine, op, format): (Engine, Op, WeightFormat),
        time: Seconds,
    ) -> Result<Changed, Refusal> {
        let numeric = self.snapshot.numeric_format(format);
        let profile = self.snapshot.profile_of(engine);
        let predicted = predict(&self.snapshot.roofline, &profile, &op, &numeric).map_err(|error| {
            Code::NoUnit.at("workload", error.to_string(), "name a format that this machine computes in")
        })?;
        let key = ResidualKey::new(engine, &op, format);
        self.learnt
            .observe_op(by, op, key, &predicted, time, self.now.unix_s)?
            .map_err(|error| error.refusal("time_s"))
    }

    pub(super) fn forget_requested(&mut self, ticket: Ticket, (which, by): (&Selection, Option<u32>)) {
        let (count, changed) = self.learnt.forget(which);
        if let (0, Some(id)) = (count, which.id) {
            let refusal = Code::NotFound.error(
                format!("there is no report {id} that you may forget"),
                "GET /v1/observations lists yours; root, and group rooflined once control is enabled, may forget everybody's",
            );
            self.effects.reply(ticket, Reply::Refused(refusal));
            return;
        }
        if count > 0 {
            let message = format!("forgot {count} reports of what was measured");
            let record =
                AuditRecord { uid: by, count: Some(count as u64), ..AuditRecord::of(AuditEvent::Forget) };
            self.effects.audit(Severity::Info, message, record);
        }
        self.save(changed);
        self.publish();
        self.effects.reply(ticket, Reply::Forgotten { count });
    }

    fn save(&mut self, changed: Changed) {
        let Learnt { residuals, observed_runs, reports } = self.learnt.clone();
        if changed.residuals {
            self.effects.push(Effect::Save(StoreItem::Residuals(residuals)));
        }
        if changed.observed_runs {
            self.effects.push(Effect::Save(StoreItem::ObservedRuns(observed_runs)));
            self.note_changes();
        }
        if changed.reports {
            self.effects.push(Effect::Save(StoreItem::Reports(reports)));
        }
    }

    /// Says that the machine is not what it was when that is noticed, and when it is over.
    fn note_changes(&mut self) {
        let alarms = self.learnt.observed_runs.alarms();
        self.note_degraded(CHANGED, (!alarms.is_empty()).then(|| alarms.join("; ")));
    }

    /// The machine was calibrated again, which explains what had changed.
    pub(super) fn forget_changes(&mut self) {
        let changed = self.learnt.recalibrated();
        self.save(changed);
    }

    /// The same with the servers that an earlier run of the daemon in this boot noticed as slow.
    #[must_use]
    pub fn with_slow_servers(mut self, now: Now, slow: SlowServers) -> Self {
        self.now = now;
        self.servers = Servers::noticed_before(now, slow);
        self.note_degraded(SLOW_SERVER, self.servers.lasting());
        // Said again in the snapshot and not in the log.
        self.effects.take();
        self.rebuild();
        self
    }

    /// The same with what an earlier run of the daemon learnt of models and from users, where that was on this machine.
    #[must_use]
    pub fn with_learnt(mut self, now: Now, observed_runs: ObservedRuns, reports: Reports) -> Self {
        self.now = now;
        let residuals = Residuals::clone(&self.learnt.residuals);
        self.learnt = Learnt::on(&machine_name(&self.board), residuals, observed_runs, reports);
        self.note_changes();
        // What was said before the restart is said again, in the snapshot and not in the log.
        self.effects.take();
        self.rebuild();
        self
    }
}
