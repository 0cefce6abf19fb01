//! Ceilings, formats and the calibration that they come from.

use serde_json::Value;

use super::convert::ceiling;
use super::mode_named::mode_named;
use super::power::power_costs;
use super::words::shorten;
use rooflined_api::{
    BandwidthPointAnswer, CalibrationAnswer, CeilingAnswer, CeilingsAnswer, FormatAnswer, FormatsAnswer,
    RegimeAnswer, ResidualAnswer, RooflineAnswer,
};
use rooflined_core::ceilings::{Ceiling, Roofline};
use rooflined_core::precision::{Precision, UnknownName, WeightFormat};
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{BytesPerSecond, FlopsPerSecond, Seconds};
use rooflined_predict::calibration::{CalibrationRecord, Regime};
use rooflined_predict::snapshot::{Now, Snapshot};

/// `GET /v1/roofline`.
pub fn roofline(
    snapshot: &Snapshot,
    now: Now,
    mode: Option<&str>,
    precision: Option<&str>,
) -> Result<RooflineAnswer, Refusal> {
    let view = mode.map(|mode| mode_named(snapshot, "mode", mode)).transpose()?;
    let only = precision.map(|name| precision_named(snapshot, name)).transpose()?;
    let roofline = view.map_or(&snapshot.roofline, |view| &view.roofline);
    let now_in = snapshot.state.power_mode.known();
    let power_mode = view.map(|view| &view.mode.name).or_else(|| now_in.map(|mode| &mode.name));
    let active = active_regime(snapshot);
    let age = match (power_mode, Ages::of_regime(active, now)) {
        (Some(mode), newest) => Ages::of(snapshot, mode, now).0.or(newest.0),
        (None, newest) => newest.0,
    };
    let wanted = |precision: &Precision| only.is_none_or(|only| only == *precision);
    let stores = |of: Ceiling<BytesPerSecond>| ceiling(of.map(BytesPerSecond::get), age);
    let ceilings = ceilings(roofline, Ages(age), wanted);
    Ok(RooflineAnswer {
        bandwidth_bytes_per_s: ceilings.bandwidth_bytes_per_s,
        copy_bytes_per_s: roofline.copy.map(stores),
        triad_bytes_per_s: roofline.triad.map(stores),
        memory_limit_bytes_per_s: ceilings.memory_limit_bytes_per_s,
        pull_limit_bytes_per_s: ceilings.pull_limit_bytes_per_s,
        compute_flops_per_s: ceilings.compute_flops_per_s,
        launch_s: ceilings.launch_s,
        ridge_flops_per_byte: ceilings.ridge_flops_per_byte,
        bandwidth_curve: roofline
            .curve
            .iter()
            .map(|point| BandwidthPointAnswer {
                working_set_bytes: point.working_set.get(),
                threads: point.threads,
                read_bytes_per_s: point.read.get(),
            })
            .collect(),
        workers: ceilings.workers,
        clock_hz: ceilings.clock_hz,
        power_mode: power_mode.cloned(),
        regimes: regimes(snapshot, active),
        drift_ratio: snapshot.drift(),
        power: power_costs(snapshot, roofline, held_in(snapshot, active, view.map(|view| &view.mode.name))),
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
    })
}

/// The regime whose loads were held in the mode of that name, or in the one in force.
fn held_in<'a>(
    snapshot: &'a Snapshot,
    active: Option<&'a Regime>,
    mode: Option<&String>,
) -> Option<&'a Regime> {
    let Some(mode) = mode else { return active };
    let mut regimes = snapshot.calibration.iter().flat_map(|record| &record.regimes);
    regimes.find(|regime| regime.point.as_ref().and_then(|point| point.power_mode.as_ref()) == Some(mode))
}

/// A limit that was calculated and not measured, so it has no age.
fn datasheet(limit: Ceiling<BytesPerSecond>) -> CeilingAnswer {
    ceiling(limit.map(BytesPerSecond::get), None)
}

/// Age of the measurement that ceilings rest on; `None` where they rest on none.
#[derive(Debug, Clone, Copy)]
pub struct Ages(pub Option<f64>);

impl Ages {
    /// Of the regime measured in the mode of that name.
    #[must_use]
    pub fn of(snapshot: &Snapshot, mode: &str, now: Now) -> Self {
        let regimes = snapshot.calibration.iter().flat_map(|record| &record.regimes);
        Self::of_regime(regimes.into_iter().find(|regime| regime.key == mode), now)
    }

    fn of_regime(regime: Option<&Regime>, now: Now) -> Self {
        Self(regime.map(|regime| age_of(regime.measured_at_unix_s, now)))
    }
}

/// Ceilings in the shape of the wire, of the precisions that `wanted` admits.
pub fn ceilings(roofline: &Roofline, age: Ages, wanted: impl Fn(&Precision) -> bool) -> CeilingsAnswer {
    let Ages(age) = age;
    let compute = roofline.compute.iter().filter(|(precision, _)| wanted(precision));
    let ridges = roofline.compute.keys().filter(|precision| wanted(precision));
    CeilingsAnswer {
        bandwidth_bytes_per_s: ceiling(roofline.bandwidth.map(BytesPerSecond::get), age),
        memory_limit_bytes_per_s: roofline.memory_limit.map(datasheet),
        pull_limit_bytes_per_s: roofline.pull_limit.map(datasheet),
        compute_flops_per_s: compute
            .map(|(precision, peak)| {
                (precision.key().to_owned(), ceiling(peak.map(FlopsPerSecond::get), age))
            })
            .collect(),
        launch_s: ceiling(roofline.launch.map(Seconds::get), age),
        ridge_flops_per_byte: ridges
            .filter_map(|precision| Some((precision.key().to_owned(), roofline.ridge(*precision)?.get())))
            .collect(),
        workers: roofline.workers,
        clock_hz: roofline.clock.map(rooflined_core::units::Hertz::get),
    }
}

fn precision_named(snapshot: &Snapshot, name: &str) -> Result<Precision, Refusal> {
    let precision: Precision = name.parse().map_err(|error: UnknownName| {
        Code::UnknownPrecision.at(
            "precision",
            format!("there is no precision {:?}", shorten(name)),
            error.near.hint(&format!(
                "Known: {}",
                Precision::ALL.iter().map(|precision| precision.key()).collect::<Vec<_>>().join(", ")
            )),
        )
    })?;
    if snapshot.roofline.compute.contains_key(&precision) {
        return Ok(precision);
    }
    let known: Vec<_> = snapshot.precisions().map(Precision::key).collect();
    Err(Code::NoUnit.at(
        "precision",
        format!("this accelerator has no unit for {precision}"),
        format!("it has {}", known.join(", ")),
    ))
}

/// The regime that the published ceilings come from: the one with the same launch cost and curve, which scaling to
/// other clocks may have moved; then the one measured last.
fn active_regime(snapshot: &Snapshot) -> Option<&Regime> {
    let record = snapshot.calibration.as_ref()?;
    let same = |regime: &&Regime| {
        regime.roofline.bandwidth.value == snapshot.roofline.bandwidth.value
            || (!regime.roofline.curve.is_empty() && regime.roofline.curve == snapshot.roofline.curve)
    };
    record.regimes.iter().find(same).or_else(|| record.current())
}

fn regimes(snapshot: &Snapshot, active: Option<&Regime>) -> Vec<RegimeAnswer> {
    let all = snapshot.calibration.iter().flat_map(|record| &record.regimes);
    all.map(|regime| RegimeAnswer {
        key: regime.key.clone(),
        active: active.is_some_and(|active| active.key == regime.key),
        core_to_core_s: regime.reference.core_to_core.map(Seconds::get),
        bandwidth_bytes_per_s: regime.roofline.bandwidth.value.get(),
        measured_at_unix_s: regime.measured_at_unix_s,
    })
    .collect()
}

fn age_of(measured_at_unix_s: f64, now: Now) -> f64 {
    // Somebody may have set the clock back.
    (now.unix_s - measured_at_unix_s).max(0.0)
}

/// `GET /v1/formats`.
pub fn formats(snapshot: &Snapshot) -> FormatsAnswer {
    let formats = WeightFormat::ALL.iter().map(|format| {
        let measured = snapshot.profile.formats.get(format);
        FormatAnswer {
            key: format.key().to_owned(),
            bits_per_weight: format.bits_per_weight(),
            block_elements: format.layout().elements,
            block_bytes: format.layout().block_bytes(),
            native_precision: format.native_precision().key().to_owned(),
            compute: measured.map(|cost| cost.compute.key().to_owned()),
            cycles_per_weight: measured.map(|cost| cost.cycles_per_weight),
            bandwidth_ratio: measured.map(|cost| cost.bandwidth_ratio),
        }
    });
    FormatsAnswer { formats: formats.collect(), serial: snapshot.serial }
}

/// Age of the record in force.
#[must_use]
pub fn calibration_age(record: Option<&CalibrationRecord>, now: Now) -> Option<f64> {
    record.map(|record| age_of(record.measured_at_unix_s, now))
}

/// `GET /v1/calibration`.
pub fn calibration(snapshot: &Snapshot, now: Now) -> CalibrationAnswer {
    let residuals = snapshot.residuals.iter().map(|(key, residual)| ResidualAnswer {
        engine: key.engine.key().to_owned(),
        op: key.op.clone(),
        format: key.format.key().to_owned(),
        count: residual.count,
        factor_ratio: residual.log_mean.exp(),
        log_mean: residual.log_mean,
        log_variance: residual.log_variance,
    });
    CalibrationAnswer {
        record: value(&snapshot.calibration),
        age_s: calibration_age(snapshot.calibration.as_ref(), now),
        status: value(&snapshot.calibration_status),
        residuals: residuals.collect(),
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
    }
}

/// Our own types have string keys and no failing implementation, so this is `null` only for `None`.
fn value(of: &impl serde::Serialize) -> Value {
    serde_json::to_value(of).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::units::Seconds;

    #[test]
    fn a_clock_that_was_set_back_makes_no_age_negative() {
        let at = |unix_s| Now { boottime: Seconds(5.0), unix_s };
        assert_eq!(age_of(1.8e9, at(1.8e9 + 60.0)), 60.0);
        for back in [0.0, -1e9, 1.7e9] {
            assert_eq!(age_of(1.8e9, at(back)), 0.0, "{back}");
        }
        assert!(age_of(0.0, at(1e15)).is_finite());
    }
}
