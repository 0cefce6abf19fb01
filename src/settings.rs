//! What the daemon runs with: the configuration, overridden by the command line, completed by the environment.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;

use super::args::Serve;
use crate::server::Limits;
use rooflined_config::{self, Bus, Config, ConfigError, DEFAULT_FILE};
use rooflined_core::board::PowerModes;
use rooflined_core::units::{Bytes, Seconds};
use rooflined_governor::Policy;
use rooflined_hw::SysRoot;
use rooflined_predict::calibration::Accelerator;

/// Answers in progress may take this long once the daemon ends; the service manager is asked for two seconds.
const DRAIN: Duration = Duration::from_secs(1);

/// Everything that is fixed when the daemon starts, and the policy, which a reload may change.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where /sys, /proc and /etc are.
    pub root: PathBuf,
    /// Where the sockets shall be; `None` = the usual place.
    pub socket_dir: Option<PathBuf>,
    /// Where calibrations are kept.
    pub state_dir: PathBuf,
    pub bus: Bus,
    /// What clients may cost.
    pub limits: Limits,
    /// Directory of hardware beside what is built in.
    pub hardware_dir: PathBuf,
    /// Directories of the model files that requests may name.
    pub model_dirs: Vec<PathBuf>,
    /// What the governor decides by.
    pub policy: Policy,
    /// Power modes that are declared rather than found.
    pub declared_modes: Option<PowerModes>,
    /// Socket of the privileged helper; `None` = that of the system service.
    pub actuator: Option<PathBuf>,
    /// The configuration that was asked for by name.
    pub config: Option<PathBuf>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

impl Settings {
    /// Reads the configuration and puts `args` on top.
    ///
    /// # Errors
    /// Every mistake in the configuration.
    pub fn load(args: &Serve) -> Result<Self, ConfigError> {
        let main = args.config.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
        let mut files = Config::files(main)?;
        // A file that was asked for must exist; the default one need not.
        if args.config.is_some() && !files.iter().any(|file| file == main) {
            files.insert(0, main.to_owned());
        }
        let config = Config::load(&files)?;
        let daemon = &config.daemon;
        let state_dir = args.state_dir.as_deref().or(daemon.state_dir.path());
        let root = args.root.clone().unwrap_or_else(|| daemon.root.clone());
        Ok(Self {
            root: root.clone(),
            socket_dir: args.socket.as_deref().or(daemon.socket_dir.path()).map(Path::to_owned),
            state_dir: state_dir.map_or_else(usual_state_dir, Path::to_owned),
            bus: args.bus.as_ref().unwrap_or(&daemon.bus).clone(),
            limits: Limits {
                connections: usize::try_from(daemon.max_connections).unwrap_or(usize::MAX),
                body_bytes: usize::try_from(daemon.body_limit_bytes).unwrap_or(usize::MAX),
                header_time: Duration::from_secs_f64(daemon.header_timeout_s),
                drain: DRAIN,
                ..Limits::default()
            },
            hardware_dir: config.hardware.dir.clone(),
            model_dirs: config.models.dirs.clone(),
            policy: Policy { elsewhere: !SysRoot::new(root.clone()).is_host(), ..policy(&config) },
            declared_modes: config.control.declared_modes(),
            actuator: config.control.actuator.path().map(Path::to_owned),
            config: args.config.clone(),
            files,
        })
    }

    /// Keys with another value than at the start, of those that only a start takes.
    pub fn waiting(&self, started_with: &Self) -> Vec<&'static str> {
        let Self {
            root,
            socket_dir,
            state_dir,
            bus,
            limits,
            hardware_dir,
            model_dirs,
            policy,
            declared_modes,
            actuator,
            config: _,
            files: _,
        } = self;
        let of = started_with;
        let changed = [
            ("[daemon] root", *root != of.root),
            ("[daemon] socket_dir", *socket_dir != of.socket_dir),
            ("[daemon] state_dir", *state_dir != of.state_dir),
            ("[daemon] bus", *bus != of.bus),
            ("[daemon] max_connections, header_timeout_s or body_limit_bytes", *limits != of.limits),
            ("[daemon] accelerator", policy.accelerator != of.policy.accelerator),
            ("[calibration] instruction_set", policy.instruction_set != of.policy.instruction_set),
            ("[hardware] dir", *hardware_dir != of.hardware_dir),
            ("[models] dirs", *model_dirs != of.model_dirs),
            ("[control] clock_modes", *declared_modes != of.declared_modes),
            ("[control] actuator", *actuator != of.actuator),
        ];
        changed.into_iter().filter_map(|(key, changed)| changed.then_some(key)).collect()
    }
}

fn policy(config: &Config) -> Policy {
    let (sampling, calibration) = (&config.sampling, &config.calibration);
    Policy {
        sampling_period: Seconds(sampling.period_s),
        idle_period: Seconds(sampling.idle_period_s),
        automatic: calibration.automatic,
        max_age: Seconds(calibration.max_age_s),
        instruction_set: calibration.instruction_set,
        time_limit_s: calibration.time_limit_s.ceil() as u32,
        memory_limit_bytes: calibration.memory_limit_bytes,
        max_load_ratio: calibration.max_load_ratio,
        max_temperature_c: calibration.max_temperature_c,
        min_free_memory: Bytes(calibration.min_free_memory_bytes as f64),
        back_off: Seconds(calibration.back_off_s),
        accelerator: match config.daemon.accelerator {
            rooflined_config::Accelerator::Auto => None,
            rooflined_config::Accelerator::Cpu => Some(Accelerator::Cpu),
            rooflined_config::Accelerator::Gpu => Some(Accelerator::Gpu),
        },
        elsewhere: false,
        control_enabled: config.control.enabled,
        allowed_modes: config.control.allowed(),
        dwell: Seconds(config.control.dwell_s),
        auto: config.policy.auto,
        hysteresis_ratio: config.policy.hysteresis_ratio,
    }
}

/// The directory that the service manager made, or the usual one of root or of the user.
fn usual_state_dir() -> PathBuf {
    let from_manager = || {
        // A list with colons if the unit asks for several directories; ours asks for one.
        let list = env::var_os("STATE_DIRECTORY").filter(|list| !list.is_empty())?;
        env::split_paths(&list).next()
    };
    let of_user = || {
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
        Some(base.join("rooflined"))
    };
    from_manager()
        .or_else(|| if geteuid().is_root() { None } else { of_user() })
        .unwrap_or_else(|| PathBuf::from("/var/lib/rooflined"))
}
