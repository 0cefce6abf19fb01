//! The power modes with what each would give, and ceilings at other operating points.

use std::borrow::Cow;

use super::ceilings::Ages;
use super::mode_named::{cap_named, mode_named, refuse_beyond_driver, unknown_power};
use super::words::{positive, subject};
use rooflined_api::{ModeClock, ModeDetail, ModeWarning, ModesAnswer, OperatingPointRequest};
use rooflined_core::board::{self, OperatingPoint};
use rooflined_core::ceilings::Roofline;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::{Hertz, Watts};
use rooflined_predict::EngineProfile;
use rooflined_predict::calibration::Accelerator;
use rooflined_predict::power::Rails;
use rooflined_predict::snapshot::{Cap, ModeView, Now, PowerLimit, Snapshot, clock_notes};

/// `GET /v1/modes`.
pub fn modes(snapshot: &Snapshot, now: Now) -> ModesAnswer {
    let known = snapshot.board.modes.known();
    let active = snapshot.state.power_mode.known();
    ModesAnswer {
        default: known.and_then(|modes| modes.default),
        active: active.map(|mode| mode.name.clone()),
        active_cause: active.map(|_| snapshot.power.cause.key().to_owned()),
        modes: snapshot.modes.iter().map(|view| detail(snapshot, view, now)).collect(),
        warnings: known.map(|modes| modes.warnings.iter().map(warning).collect()).unwrap_or_default(),
        source: known.map(|modes| modes.source.clone()),
        reason: snapshot.board.modes.reason().map(ToOwned::to_owned),
        simulated: snapshot.board.simulated,
        serial: snapshot.serial,
    }
}

fn warning(of: &board::ModeWarning) -> ModeWarning {
    ModeWarning { line: of.line, message: of.message.clone() }
}

/// What a mode asks of the clocks without a field of their own.
#[must_use]
pub fn other_clocks(mode: &board::PowerMode) -> Vec<ModeClock> {
    let clock = |clock: board::ClockBounds| ModeClock {
        name: clock.name,
        min_hz: clock.min.map(Hertz::get),
        max_hz: clock.max.map(Hertz::get),
    };
    mode.other_clocks().into_iter().map(clock).collect()
}

fn detail(snapshot: &Snapshot, view: &ModeView, now: Now) -> ModeDetail {
    let mode = &view.mode;
    let active = snapshot.state.power_mode.known().is_some_and(|active| mode.is(active));
    let default = snapshot.board.modes.known().and_then(|modes| modes.default);
    ModeDetail {
        id: mode.id,
        name: mode.name.clone(),
        default: default == Some(mode.id),
        active,
        cores_online: mode.cores_online,
        cpu_min_hz: mode.min_clock(board::ClockBounds::is_cpu).map(Hertz::get),
        cpu_max_hz: mode.cpu_max.map(Hertz::get),
        gpu_min_hz: mode.min_clock(|clock| clock.name == "GPU").map(Hertz::get),
        gpu_max_hz: mode.gpu_max.map(Hertz::get),
        emc_max_hz: mode.memory_max.map(Hertz::get),
        other_clocks: other_clocks(mode),
        tpc_mask: mode.tpc_mask,
        sm_online: mode
            .sm_online
            .or((snapshot.accelerator == Accelerator::Gpu).then_some(view.roofline.workers)),
        reboot_required: view.reboot_required,
        reachable: active || view.unreachable.is_none(),
        unreachable_reason: view.unreachable.clone().filter(|_| !active),
        ceilings: super::ceilings::ceilings(&view.roofline, Ages::of(snapshot, &mode.name, now), |_| true),
        clock_notes: clock_notes(&snapshot.board, &snapshot.state, snapshot.hardware.as_deref(), mode),
        measured_power_w: view.measured_power.map(Watts::get),
        measured_power_scope: view.measured_power.and(measured_scope(snapshot)),
        worst_power_w: view.worst_power.map(|worst| worst.watts.get()),
        worst_power_scope: view.worst_power.and_then(|_| {
            let costs = snapshot.power_costs(&view.roofline);
            costs.map(|costs| costs.rails.scope().to_owned()).or_else(|| measured_scope(snapshot))
        }),
        worst_power_source: view.worst_power.map(|worst| worst.source.key().to_owned()),
    }
}

/// What the machine's meter covers.
fn measured_scope(snapshot: &Snapshot) -> Option<String> {
    let total = snapshot.state.total_power.known()?;
    Rails::of(&total.scope).map(|rails| rails.scope().to_owned())
}

/// Ceilings and kernel costs that a prediction rests on.
#[derive(Debug, Clone)]
pub struct Model<'a> {
    pub roofline: Cow<'a, Roofline>,
    /// The costs of this crate's own kernels.
    pub profile: Cow<'a, EngineProfile>,
    /// Threads that are asked for on a CPU; `None` = as many as the engine takes.
    pub threads: Option<u32>,
    /// The limit on power that lowers the clock of a run until it keeps to it.
    pub limit: Option<PowerLimit>,
}

impl<'a> Model<'a> {
    /// The same threads at a point where no limit holds.
    pub const fn unlimited(&self, roofline: Roofline, profile: EngineProfile) -> Self {
        Self {
            roofline: Cow::Owned(roofline),
            profile: Cow::Owned(profile),
            threads: self.threads,
            limit: None,
        }
    }

    /// As the machine is now.
    pub const fn now(snapshot: &'a Snapshot) -> Self {
        Self {
            roofline: Cow::Borrowed(&snapshot.roofline),
            profile: Cow::Borrowed(&snapshot.profile),
            threads: None,
            limit: None,
        }
    }
}

/// The model of a GPU at the operating point asked for.
pub fn gpu_model_at<'a>(
    snapshot: &'a Snapshot,
    request: &OperatingPointRequest,
    path: &str,
) -> Result<Model<'a>, Refusal> {
    let hardware = snapshot.hardware.as_deref();
    let mode_field = format!("{path}.power_mode");
    let cap = match &request.power_mode {
        Some(name) => cap_named(snapshot, &mode_field, name)?,
        None => None,
    };
    let (base, capped) = match (&request.power_mode, cap) {
        (_, Some(cap)) => snapshot.point_under(cap),
        (Some(name), None) => {
            let view = mode_named(snapshot, &mode_field, name)?;
            if *request
                == (OperatingPointRequest { power_mode: request.power_mode.clone(), ..Default::default() })
            {
                return Ok(Model {
                    roofline: Cow::Borrowed(&view.roofline),
                    profile: Cow::Borrowed(&view.profile),
                    threads: None,
                    limit: None,
                });
            }
            let point =
                rooflined_predict::snapshot::point_in(&snapshot.board, &snapshot.state, hardware, &view.mode);
            (point, None)
        }
        (None, None) => {
            (rooflined_predict::snapshot::point_now(&snapshot.board, &snapshot.state, hardware), None)
        }
    };
    let watts = request.power_limit_w.map(|watts| limit_watts(snapshot, watts, path)).transpose()?;
    if request.emc_hz.is_some() && hardware.is_some_and(|hardware| hardware.memory_clock.is_none()) {
        return Err(Code::UnsupportedOperatingPoint.at(
            format!("{path}.emc_hz"),
            format!("the bandwidth of {} is known, and no memory clock that it follows", subject(snapshot)),
            "leave it out",
        ));
    }
    let clock = |name: &str, value: Option<f64>, own: Option<Hertz>, highest: Option<Hertz>| {
        let Some(value) = value else { return Ok(own) };
        let field = format!("{path}.{name}");
        let clock = positive(&field, value)?;
        // Twice the highest clock is no clock of this part; a thousandth of it is MHz or kHz for Hz.
        let plausible = highest.is_none_or(|highest| (1e-3..=2.0).contains(&(clock / highest.get())));
        if !plausible {
            return Err(Code::InvalidField.at(
                field,
                format!("{clock} Hz is not a clock of {}", subject(snapshot)),
                format!("give {name} in hertz: 1.02e9 is 1.02 GHz"),
            ));
        }
        Ok(Some(Hertz(clock)))
    };
    if let Some(sm) = request.sm_online {
        let most = hardware.map_or(u32::MAX, |hardware| hardware.sm);
        if !(1..=most).contains(&sm) {
            return Err(Code::InvalidField.at(
                format!("{path}.sm_online"),
                format!("{sm} SMs cannot be online: {} has {most}", subject(snapshot)),
                format!("give 1 to {most}"),
            ));
        }
    }
    let point = OperatingPoint {
        power_mode: None,
        sm_online: request.sm_online.or(base.sm_online),
        gpu_clock: clock(
            "gpu_hz",
            request.gpu_hz,
            base.gpu_clock,
            hardware.map(|hardware| hardware.gpu_clock),
        )?,
        memory_clock: clock(
            "emc_hz",
            request.emc_hz,
            base.memory_clock,
            hardware.and_then(|hardware| hardware.memory_clock),
        )?,
        // A GPU's ceilings do not depend on the CPU.
        cpu_clock: None,
        cores_online: None,
    };
    let (roofline, profile) = snapshot.gpu_at(&point).ok_or_else(|| {
        Code::UnsupportedOperatingPoint.at(
            path,
            format!("the accelerator of {} has no such operating point", subject(snapshot)),
            "leave operating_point out",
        )
    })?;
    // Of two limits the lower one holds.
    let limits = watts.into_iter().chain(capped.map(|limit| limit.watts));
    let limit = limits.reduce(Watts::min).map(|watts| PowerLimit { watts, point });
    Ok(Model { roofline: Cow::Owned(roofline), profile: Cow::Owned(profile), threads: None, limit })
}

/// A limit on the power of this machine's accelerator.
fn limit_watts(snapshot: &Snapshot, watts: f64, path: &str) -> Result<Watts, Refusal> {
    let field = format!("{path}.power_limit_w");
    let watts = positive(&field, watts)?;
    if snapshot.capped_hardware().is_none() {
        return Err(Code::UnsupportedOperatingPoint.at(
            field,
            format!("{} has no power limit to set: cards and GB10 have", subject(snapshot)),
            "leave it out; a Jetson is limited by its power mode: power_mode",
        ));
    }
    if snapshot.power_costs(&snapshot.roofline).is_none() {
        return Err(unknown_power(snapshot, &field));
    }
    refuse_beyond_driver(snapshot, Watts(watts), &field)?;
    Ok(Watts(watts))
}

/// That no limit on power is asked for where nothing is predicted that could keep to it.
///
/// # Errors
/// The limit, whose field is below `path`.
pub fn refuse_power_limit(point: Option<&OperatingPointRequest>, path: &str) -> Result<(), Refusal> {
    let is_limit = |name: &String| matches!(Cap::named(name), Some(Cap::Power(_)));
    let field = match point {
        Some(point) if point.power_limit_w.is_some() => "power_limit_w",
        Some(point) if point.power_mode.as_ref().is_some_and(is_limit) => "power_mode",
        _ => return Ok(()),
    };
    Err(Code::UnsupportedOperatingPoint.at(
        format!("{path}.{field}"),
        "a power limit is predicted by predict, recommend and sweep, and for no vision network",
        "cap the clock instead: power_mode lgc-2000",
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use rooflined_core::hardware::registry;
    use rooflined_core::units::Seconds;
    use rooflined_predict::snapshot::{WorstPower, WorstSource};
    use serde_json::json;

    #[test]
    fn a_mode_shows_what_it_draws_at_its_worst_and_null_where_nobody_knows() {
        let hardware = Arc::new(registry().get("jetson-orin-nano-8gb-super").unwrap().clone());
        let mut snapshot = Snapshot::hypothetical(hardware);
        let mut views = snapshot.modes.to_vec();
        let worst = |watts, source| Some(WorstPower { watts: Watts(watts), source });
        views[0].worst_power = worst(12.5, WorstSource::Measured);
        views[1].worst_power = worst(21.2, WorstSource::Carried);
        snapshot.modes = Arc::new(views);
        let now = Now { boottime: Seconds(1.0), unix_s: 1e9 };
        let answer = serde_json::to_value(modes(&snapshot, now)).unwrap();
        let shown = |index: usize| {
            let mode = &answer["modes"][index];
            json!([mode["worst_power_w"], mode["worst_power_source"]])
        };
        assert_eq!(shown(0), json!([12.5, "measured"]));
        assert_eq!(shown(1), json!([21.2, "carried"]));
        assert_eq!(shown(2), json!([null, null]));
        assert!(
            answer["modes"][2].as_object().unwrap().contains_key("worst_power_w"),
            "null and not left out"
        );
    }
}
