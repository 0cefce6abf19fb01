//! What power costs, in the shape of the wire.

use rooflined_api::{PowerCostsAnswer, PowerPointAnswer};
use rooflined_core::ceilings::Roofline;
use rooflined_core::units::Celsius;
use rooflined_predict::calibration::{PowerPoint, Regime};
use rooflined_predict::power::PowerSource;
use rooflined_predict::snapshot::Snapshot;

/// What power costs at the point of `roofline`; `regime` is the one that was measured there.
pub fn power_costs(snapshot: &Snapshot, roofline: &Roofline, regime: Option<&Regime>) -> PowerCostsAnswer {
    let costs = snapshot.power_costs(roofline);
    let measured = costs.as_ref().is_some_and(|costs| costs.source == PowerSource::Measured);
    let points = regime.map(|regime| regime.power_points.iter().map(point).collect()).unwrap_or_default();
    let reason = regime.and_then(|regime| regime.power_reason.clone());
    let reason = reason.or_else(|| (!measured).then(|| nothing_measured(snapshot)));
    let Some(costs) = costs else {
        return PowerCostsAnswer { points, reason, ..PowerCostsAnswer::default() };
    };
    let of = &costs.coefficients;
    PowerCostsAnswer {
        power_source: Some(costs.source.key().to_owned()),
        power_from: Some(costs.rails.key().to_owned()),
        static_w: Some(of.static_w),
        byte_j: Some(of.byte_j),
        flop_j: of.flop_j,
        flop_precision: Some(costs.flop_precision.key().to_owned()),
        weight_j: Some(of.weight_j),
        half_width_ratio: Some(costs.half_width_ratio),
        points,
        reason,
        warnings: costs.words(),
    }
}

fn nothing_measured(snapshot: &Snapshot) -> String {
    match snapshot.state.total_power.reason() {
        Some(why) => format!("no power rail or energy counter can be read: {why}"),
        None => "no loads were held under the meter yet: rooflinectl calibrate".to_owned(),
    }
}

fn point(point: &PowerPoint) -> PowerPointAnswer {
    PowerPointAnswer {
        load: point.load.key().to_owned(),
        kernel: point.kernel.as_ref().map(rooflined_predict::calibration::Kernel::describe),
        power_w: point.power_w.map(rooflined_core::units::Watts::get),
        reason: point.reason.clone(),
        duration_s: point.duration_s.get(),
        readings: point.readings,
        bytes_per_s: point.bytes_per_s,
        flops_per_s: point.flops_per_s,
        precision: point.precision.map(|precision| precision.key().to_owned()),
        weights_per_s: point.weights_per_s,
        power_from: point.scope.clone(),
        rails: point.rails.clone(),
        temperature_c: point.temperature_c.map(Celsius::get),
    }
}
