//! Prometheus text (version 0.0.4). A value that is unknown has no sample: an absent series says so, a zero lies.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use rooflined_advice::calibration_age;
use rooflined_governor::Now;
use rooflined_predict::snapshot::Snapshot;

mod process;
mod state;

/// What one HTTP server counts about itself.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests answered, errors included.
    pub requests: AtomicU64,
    /// Those answered with an error of the client.
    pub client_errors: AtomicU64,
    /// Those answered with an error of ours.
    pub server_errors: AtomicU64,
    /// Connections turned away because all were taken.
    pub refused: AtomicU64,
    pub connections: AtomicU64,
    /// Event streams open now.
    pub streams: AtomicU64,
}

impl Counters {
    pub fn answered(&self, status: u16) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match status {
            400..=499 => self.client_errors.fetch_add(1, Ordering::Relaxed),
            500.. => self.server_errors.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

/// Collects samples; a family's HELP and TYPE are written with its first sample only.
struct Page {
    text: String,
    family: &'static str,
}

impl Page {
    fn sample(&mut self, family: Family, labels: &[(&str, &str)], value: f64) {
        if !value.is_finite() {
            return;
        }
        let Family { name, kind, help } = family;
        if self.family != name {
            self.family = name;
            // Writing into a String cannot fail.
            let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        self.text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"");
            escape(&mut self.text, value);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    fn maybe(&mut self, family: Family, labels: &[(&str, &str)], value: Option<f64>) {
        if let Some(value) = value {
            self.sample(family, labels, value);
        }
    }
}

/// Label values escape backslash, quote and line feed.
fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            plain => text.push(plain),
        }
    }
}

#[derive(Clone, Copy)]
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: "gauge", help }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: "counter", help }
}

const fn truth(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

/// The whole page. `socket` labels the server's own counters.
#[must_use]
pub fn page(snapshot: &Snapshot, now: Now, counters: &Counters, socket: &str) -> String {
    let mut page = Page { text: String::with_capacity(8 * 1024), family: "" };
    machine(&mut page, snapshot, now);
    state::state(&mut page, &rooflined_advice::state(snapshot, now));
    ceilings(&mut page, snapshot);
    calibration(&mut page, snapshot, now);
    server(&mut page, counters, socket);
    process::process(&mut page);
    page.text
}

fn machine(page: &mut Page, snapshot: &Snapshot, now: Now) {
    let (board, state) = (&snapshot.board, &snapshot.state);
    page.sample(
        gauge("rooflined_info", "Version and machine; always 1."),
        &[
            ("version", env!("CARGO_PKG_VERSION")),
            ("board", &board.key),
            ("cpu", board.cpu.model.known().map_or("", String::as_str)),
            ("simulated", if board.simulated { "true" } else { "false" }),
        ],
        1.0,
    );
    page.sample(gauge("rooflined_snapshot_serial", "Snapshots published."), &[], count(snapshot.serial));
    page.sample(
        gauge("rooflined_state_age_seconds", "Age of the newest reading of the machine."),
        &[],
        (now.boottime - state.taken_at).get().max(0.0),
    );
    page.sample(
        gauge("rooflined_degraded", "Things that do not work."),
        &[],
        count(snapshot.degraded.len() as u64),
    );
    if let Some(total) = state.total_power.known() {
        let family = gauge("rooflined_total_power_watts", "Power of what the scope names.");
        page.sample(family, &[("scope", &total.scope)], total.power.get());
    }
    for zone in state.temperatures.known().into_iter().flatten() {
        let family = gauge("rooflined_temperature_celsius", "Temperature of each thermal zone.");
        page.maybe(family, &[("zone", &zone.name)], zone.temperature.known().map(|t| t.get()));
    }
    for rail in state.rails.known().into_iter().flatten() {
        let family = gauge("rooflined_rail_power_watts", "Power of each rail.");
        page.maybe(family, &[("rail", &rail.name)], rail.power.known().map(|power| power.get()));
    }
    if let Some(pressure) = state.pressure.known() {
        let family =
            gauge("rooflined_pressure_ratio", "Share of ten seconds in which some task waited (PSI some).");
        page.sample(family, &[("resource", "memory")], pressure.memory_some_ratio);
        page.maybe(family, &[("resource", "cpu")], pressure.cpu_some_ratio);
    }
}

fn ceilings(page: &mut Page, snapshot: &Snapshot) {
    let roofline = &snapshot.roofline;
    let family = gauge("rooflined_bandwidth_bytes_per_second", "Main-memory bandwidth ceilings.");
    let read = Some(&roofline.bandwidth);
    for (pattern, ceiling) in
        [("read", read), ("copy", roofline.copy.as_ref()), ("triad", roofline.triad.as_ref())]
    {
        if let Some(ceiling) = ceiling {
            let labels = [("pattern", pattern), ("provenance", ceiling.provenance.key())];
            page.sample(family, &labels, ceiling.value.get());
        }
    }
    let family = gauge("rooflined_compute_flops_per_second", "Peak of each precision.");
    for (precision, ceiling) in &roofline.compute {
        let labels = [("precision", precision.key()), ("provenance", ceiling.provenance.key())];
        page.sample(family, &labels, ceiling.value.get());
    }
    let family = gauge("rooflined_launch_seconds", "Cost of starting one operation.");
    page.sample(family, &[("provenance", roofline.launch.provenance.key())], roofline.launch.value.get());
    page.maybe(
        gauge(
            "rooflined_bandwidth_drift_ratio",
            "Newest reference bandwidth over the one calibrated in the same power mode.",
        ),
        &[],
        snapshot.drift(),
    );
}

fn calibration(page: &mut Page, snapshot: &Snapshot, now: Now) {
    let age = calibration_age(snapshot.calibration.as_ref(), now);
    page.maybe(gauge("rooflined_calibration_age_seconds", "Age of the current calibration."), &[], age);
    let status = &snapshot.calibration_status;
    page.sample(
        gauge("rooflined_calibration_running", "1 while a calibration runs."),
        &[],
        truth(status.running.is_some()),
    );
    let family = gauge("rooflined_calibration_failed", "1 if the last calibration failed.");
    page.sample(family, &[], truth(status.last_error.is_some()));
    let family = gauge("rooflined_observations", "Observations learned from.");
    for (engine, number) in snapshot.residuals.counts() {
        page.sample(family, &[("engine", engine)], f64::from(number));
    }
    let family = gauge("rooflined_model_observations", "Runs of models that are kept.");
    for (engine, number) in snapshot.observed_runs.counts() {
        page.sample(family, &[("engine", engine)], f64::from(number));
    }
    let family = gauge("rooflined_model_observations_refused", "Runs of models that were refused.");
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    page.sample(family, &[], (snapshot.observed_runs.refused() + snapshot.reports.refused()) as f64);
}

fn server(page: &mut Page, counters: &Counters, socket: &str) {
    let labels = [("socket", socket)];
    let read = |value: &AtomicU64| count(value.load(Ordering::Relaxed));
    let family = counter("rooflined_http_requests_total", "Requests answered.");
    page.sample(family, &labels, read(&counters.requests));
    let family = counter("rooflined_http_errors_total", "Requests answered with an error.");
    page.sample(family, &[("socket", socket), ("class", "client")], read(&counters.client_errors));
    page.sample(family, &[("socket", socket), ("class", "server")], read(&counters.server_errors));
    let family = counter("rooflined_http_refused_total", "Connections turned away because all were taken.");
    page.sample(family, &labels, read(&counters.refused));
    let family = gauge("rooflined_http_connections", "Connections open.");
    page.sample(family, &labels, read(&counters.connections));
    let family = gauge("rooflined_http_streams", "Event streams open.");
    page.sample(family, &labels, read(&counters.streams));
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus counts in f64")]
const fn count(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped_and_unknown_values_left_out() {
        let mut page = Page { text: String::new(), family: "" };
        let family = gauge("x_bytes", "Help.");
        page.sample(family, &[("a", "q\"b\\s\nn")], 1.5);
        page.sample(family, &[], 1e18);
        page.maybe(gauge("y_bytes", "Never shown."), &[], None);
        page.sample(gauge("z_bytes", "Never shown."), &[], f64::NAN);
        let expected = "# HELP x_bytes Help.\n# TYPE x_bytes gauge\nx_bytes{a=\"q\\\"b\\\\s\\nn\"} 1.5\n\
                        x_bytes 1000000000000000000\n";
        assert_eq!(page.text, expected);
    }
}
