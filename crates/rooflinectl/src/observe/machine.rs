//! The machine as the daemon sees it beside a window: what has to stay the same, and the power meter.

use serde_json::Value;

use super::window::Skip;
use rooflined_api::StateAnswer;

/// Clocks of a GPU and of memory that are one operating point.
const SAME_CLOCK_RATIO: f64 = 0.03;
/// A reading of the power meter that is older tells of something else.
const MAX_AGE_S: f64 = 10.0;

/// What a window must not see change.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// The power mode, caps, and cores and SMs online, as they are told.
    exact: Vec<Value>,
    /// Clocks of the GPU and of memory.
    clocks: Vec<Option<f64>>,
    is_throttled: bool,
}

impl Conditions {
    pub fn of(state: &StateAnswer) -> Self {
        let value = |name: &str| state.fields.get(name).map_or(Value::Null, |field| field.value.clone());
        let exact = ["cores_online", "cpu_cap_hz", "gpu_cap_hz", "sm_online", "memory_cap_hz"];
        let mode = value("power_mode").get("name").cloned().unwrap_or_default();
        Self {
            exact: std::iter::once(mode).chain(exact.map(value)).collect(),
            clocks: ["gpu_hz", "memory_hz"].map(|name| value(name).as_f64()).to_vec(),
            is_throttled: value("throttle").get("active").and_then(Value::as_bool).unwrap_or(false),
        }
    }

    /// Whether they still hold in `later`.
    pub fn judge(&self, later: &Self) -> Result<(), Skip> {
        if self.is_throttled || later.is_throttled {
            return Err(Skip::Throttled);
        }
        let moved = |(was, is): (&Option<f64>, &Option<f64>)| match (was, is) {
            (Some(was), Some(is)) => (was - is).abs() > SAME_CLOCK_RATIO * was.max(*is),
            _ => was.is_some() != is.is_some(),
        };
        if self.exact != later.exact || self.clocks.iter().zip(&later.clocks).any(moved) {
            return Err(Skip::MachineChanged);
        }
        Ok(())
    }
}

/// Readings of the power meter of the whole machine or module within a window.
#[derive(Debug, Default)]
pub struct Meter {
    /// When each was taken, on the clock of the looks, and what it was.
    readings: Vec<(f64, f64)>,
}

impl Meter {
    /// Takes what `state`, asked for at `now_s`, tells; the same sample only once.
    pub fn read(&mut self, state: &StateAnswer, now_s: f64) {
        /// Samples of the daemon are further apart.
        const SAME_S: f64 = 0.02;
        let Some(field) = state.fields.get("total_power_w") else { return };
        let (Some(watts), Some(age)) = (field.value.as_f64(), field.age_s) else { return };
        let taken = now_s - age;
        if age <= MAX_AGE_S && self.readings.last().is_none_or(|(last, _)| taken > last + SAME_S) {
            self.readings.push((taken, watts));
        }
    }

    /// Mean of the readings from `begin_s` to `end_s`; `None` where there are fewer than three.
    pub fn mean(&self, begin_s: f64, end_s: f64) -> Option<f64> {
        const ENOUGH: usize = 3;
        let within: Vec<f64> = self
            .readings
            .iter()
            .filter(|(at, _)| (begin_s..=end_s).contains(at))
            .map(|(_, watts)| *watts)
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "a handful of readings")]
        (within.len() >= ENOUGH).then(|| within.iter().sum::<f64>() / within.len() as f64)
    }

    /// Forgets what lies before a window that begins now.
    pub fn forget_before(&mut self, begin_s: f64) {
        self.readings.retain(|(at, _)| *at >= begin_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_api::StateField;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn state(fields: &[(&str, Value, f64)]) -> StateAnswer {
        let field = |(name, value, age): &(&str, Value, f64)| {
            let field = StateField {
                value: value.clone(),
                age_s: Some(*age),
                reason: None,
                reasons: BTreeMap::new(),
            };
            ((*name).to_owned(), field)
        };
        StateAnswer {
            fields: fields.iter().map(field).collect::<BTreeMap<_, _>>(),
            sources: BTreeMap::new(),
            simulated: false,
            degraded: Vec::new(),
            serial: 1,
        }
    }

    #[test]
    fn a_mode_a_clock_or_throttling_spoils_a_window() {
        let at = |mode: &str, gpu_hz: f64, throttled: bool| {
            Conditions::of(&state(&[
                ("power_mode", json!({"id": 1, "name": mode}), 0.1),
                ("gpu_hz", json!(gpu_hz), 0.1),
                ("throttle", json!({"active": throttled, "evidence": []}), 0.1),
            ]))
        };
        let before = at("25W", 1e9, false);
        assert_eq!(before.judge(&at("25W", 1.02e9, false)), Ok(()));
        assert_eq!(before.judge(&at("25W", 0.9e9, false)), Err(Skip::MachineChanged));
        assert_eq!(before.judge(&at("15W", 1e9, false)), Err(Skip::MachineChanged));
        assert_eq!(before.judge(&at("25W", 1e9, true)), Err(Skip::Throttled));
        assert_eq!(before.judge(&Conditions::of(&state(&[]))), Err(Skip::MachineChanged));
        assert_eq!(Conditions::of(&state(&[])).judge(&Conditions::of(&state(&[]))), Ok(()));
    }

    #[test]
    fn power_is_the_mean_of_three_samples_of_the_window_at_least() {
        let mut meter = Meter::default();
        // The one of 1.0 s is seen twice, and the last is too old to be believed.
        for (now, age, watts) in
            [(1.0, 0.0, 10.0), (1.5, 0.5, 10.0), (2.0, 0.0, 12.0), (3.0, 0.0, 14.0), (20.0, 12.0, 99.0)]
        {
            meter.read(&state(&[("total_power_w", json!(watts), age)]), now);
        }
        assert_eq!(meter.mean(1.0, 30.0), Some(12.0));
        assert_eq!(meter.mean(1.5, 30.0), None);
        meter.forget_before(1.5);
        assert_eq!(meter.mean(1.0, 30.0), None);
        meter.read(&state(&[("total_power_w", Value::Null, 0.0)]), 40.0);
        assert_eq!(meter.readings.len(), 2);
    }
}
