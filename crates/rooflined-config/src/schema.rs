//! Every table and key, its type, its default and the range it may have: the one place where they are written.

use std::ops::RangeInclusive;
use std::path::{Component, PathBuf};

use serde::{Deserialize, Serialize};

use super::ClockMode;
use super::value::{Accelerator, Bus, Location};
use rooflined_core::names::InstructionSet;
use rooflined_predict::snapshot::Automatic;

macro_rules! schema {
    ($(
        $(#[$table_doc:meta])*
        $table:ident: $type:ident {
            $( $(#[$key_doc:meta])* $key:ident: $value:ty = $default:expr $(, $range:expr)?; )*
        }
    )*) => {
        $(
            $(#[$table_doc])*
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            #[serde(default, deny_unknown_fields)]
            #[non_exhaustive]
            pub struct $type {
                $( $(#[$key_doc])* pub $key: $value, )*
            }

            impl Default for $type {
                fn default() -> Self {
                    Self { $($key: $default,)* }
                }
            }
        )*

        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[non_exhaustive]
        pub struct Config {
            $( $(#[$table_doc])* pub $table: $type, )*
        }

        impl Config {
            pub const TABLES: &'static [(&'static str, &'static [&'static str])] =
                &[$((stringify!($table), &[$(stringify!($key)),*]),)*];

            /// The keys whose number is out of its range, and what was expected.
            fn out_of_range(&self) -> Vec<(&'static str, String)> {
                let mut wrong = Vec::new();
                $($($(
                    let range: RangeInclusive<$value> = $range;
                    if !range.contains(&self.$table.$key) {
                        let expected = format!("a number from {} to {}", range.start(), range.end());
                        wrong.push((concat!(stringify!($table), ".", stringify!($key)), expected));
                    }
                )?)*)*
                wrong
            }
        }
    };
}

impl Config {
    /// Every key with a value that it cannot have, and what was expected.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut wrong = self.out_of_range();
        for (key, path) in [("daemon.root", &self.daemon.root), ("hardware.dir", &self.hardware.dir)] {
            if !path.is_absolute() {
                wrong.push((key, "an absolute path".to_owned()));
            }
        }
        let climbs = |path: &PathBuf| path.components().any(|part| part == Component::ParentDir);
        if self.models.dirs.iter().any(|path| !path.is_absolute() || climbs(path)) {
            let expected = "a list of absolute paths without \"..\", such as [\"/srv/models\"]";
            wrong.push(("models.dirs", expected.to_owned()));
        }
        if !ClockMode::distinct(&self.control.clock_modes) {
            wrong.push(("control.clock_modes", ClockMode::EXPECTED.to_owned()));
        }
        wrong
    }
}

schema! {
    /// `[daemon]`: where it lives and what clients may cost.
    daemon: Daemon {
        /// Directory of the sockets.
        socket_dir: Location = Location::Auto;
        /// Directory of calibrations and of what was learnt.
        state_dir: Location = Location::Auto;
        bus: Bus = Bus::System;
        /// Where /sys, /proc and /etc of the board are found.
        root: PathBuf = PathBuf::from("/");
        /// What predictions are for.
        accelerator: Accelerator = Accelerator::Auto;
        /// Connections at one time, per socket.
        max_connections: u32 = 256, 1..=4096;
        /// A request's header must be complete within this time.
        header_timeout_s: f64 = 5.0, 0.1..=300.0;
        /// Longest request body.
        body_limit_bytes: u64 = 65_536, 1024..=16_777_216;
    }
    /// `[sampling]`: how often the board is read.
    sampling: Sampling {
        /// Between two samples while somebody watches.
        period_s: f64 = 1.0, 0.1..=3600.0;
        /// Between two samples while nobody does.
        idle_period_s: f64 = 30.0, 0.1..=86_400.0;
    }
    /// `[calibration]`: when the ceilings are measured, and what that may cost.
    calibration: Calibration {
        /// Measure without being asked: where there is no record, or it is stale.
        automatic: bool = true;
        /// Age at which a record is stale.
        max_age_s: f64 = 2_592_000.0, 60.0..=3_153_600_000.0;
        /// Vector instructions of the CPU that are measured, and used by what is measured later.
        instruction_set: InstructionSet = InstructionSet::Auto;
        /// Longest run of the probe.
        time_limit_s: f64 = 10.0, 1.0..=600.0;
        /// Most memory of the probe.
        memory_limit_bytes: u64 = 4_294_967_296, 16_777_216..=1_099_511_627_776;
        /// Other work may keep this part of the CPUs busy; above it a calibration waits for a quieter moment.
        max_load_ratio: f64 = 0.2, 0.0..=1.0;
        /// Hottest zone at which a calibration starts.
        max_temperature_c: f64 = 80.0, 0.0..=150.0;
        /// Memory that must be left available beside the probe's.
        min_free_memory_bytes: u64 = 268_435_456, 0..=1_099_511_627_776;
        /// Wait after a run that failed; it doubles with every further failure.
        back_off_s: f64 = 300.0, 1.0..=86_400.0;
    }
    /// `[control]`: what clients of the control socket may change.
    control: Control {
        /// Whether they may change anything.
        enabled: bool = false;
        /// Names of the power modes that may be set; `*` stands for every one, empty: none.
        allowed_modes: Vec<String> = vec!["*".to_owned()];
        /// A mode that was entered for a hold stays for at least this long after the last hold.
        dwell_s: f64 = 10.0, 0.0..=3600.0;
        /// Modes that lock the GPU's clock, on machines without nvpmodel.
        clock_modes: Vec<ClockMode> = Vec::new();
        nvpmodel: Location = Location::Auto;
        /// Socket of the privileged helper.
        actuator: Location = Location::Auto;
    }
    /// `[policy]`: what the daemon does by itself.
    policy: Policy {
        /// What it does about the queries of holds.
        auto: Automatic = Automatic::Off;
        /// A mode that meets every hold is left only for one that saves more than this part of the energy.
        hysteresis_ratio: f64 = 0.1, 0.0..=1.0;
    }
    /// `[hardware]`: accelerators beside those that are built in.
    hardware: Hardware {
        /// Directory of a user's own entries.
        dir: PathBuf = PathBuf::from("/etc/rooflined/hardware");
    }
    /// `[models]`: files that requests name.
    models: Models {
        /// Directories below which the daemon itself opens model files.
        dirs: Vec<PathBuf> = vec![PathBuf::from("/var/lib/rooflined/models")];
    }
    /// `[engines]`: no keys in this version.
    engines: Engines {}
    /// `[metrics]`: no keys in this version.
    metrics: Metrics {}
}
