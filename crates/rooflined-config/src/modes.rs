//! Which power modes may be set, and those that are declared rather than found.

use serde::{Deserialize, Serialize};

use super::Control;
use rooflined_core::board::{Knob, PowerMode, PowerModes};
use rooflined_core::units::Hertz;

/// Stands for every mode in a list of names.
const EVERY: &str = "*";
/// Name of the mode without a lock; it need not be declared.
const UNLOCKED: &str = "default";
/// Highest clock that is accepted.
const HIGHEST_MHZ: u32 = 10_000;

/// A mode that locks the GPU's clock, written `NAME=MIN..MAXMHz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClockMode {
    /// Free text without `=`.
    pub name: String,
    pub min_mhz: u32,
    pub max_mhz: u32,
}

impl ClockMode {
    pub(super) const EXPECTED: &'static str = "a list of NAME=MIN..MAXMHz with names of its own, such as \
                                               [\"quiet=0..1500MHz\"]; the name default means no lock";

    /// Whether no two modes have the same name, and none that of the mode without a lock.
    pub(super) fn distinct(modes: &[Self]) -> bool {
        modes.iter().enumerate().all(|(index, mode)| {
            let same = |other: &Self| other.name.eq_ignore_ascii_case(&mode.name);
            !mode.name.eq_ignore_ascii_case(UNLOCKED) && !modes[..index].iter().any(same)
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let (name, clocks) = text.split_once('=')?;
        let (min, max) = clocks.strip_suffix("MHz")?.split_once("..")?;
        let whole = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u32>().ok()).flatten()
        };
        let (min_mhz, max_mhz) = (whole(min)?, whole(max)?);
        let named = !name.is_empty() && name.trim() == name && name.chars().count() <= 64;
        // A name of digits alone could not be distinguished from the number of another mode.
        let named = named && !name.chars().any(char::is_control) && name.parse::<u32>().is_err();
        let good = named && min_mhz <= max_mhz && (1..=HIGHEST_MHZ).contains(&max_mhz);
        good.then(|| Self { name: name.to_owned(), min_mhz, max_mhz })
    }
}

impl TryFrom<String> for ClockMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or_else(|| format!("expected {}", Self::EXPECTED))
    }
}

impl From<ClockMode> for String {
    fn from(mode: ClockMode) -> Self {
        format!("{}={}..{}MHz", mode.name, mode.min_mhz, mode.max_mhz)
    }
}

impl Control {
    /// The names that may be set; `None` stands for every one.
    #[must_use]
    pub fn allowed(&self) -> Option<Vec<String>> {
        let every = self.allowed_modes.iter().any(|name| name == EVERY);
        (!every).then(|| self.allowed_modes.clone())
    }

    /// Whether a mode of this name may be set, upper and lower case alike.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        self.allowed_modes.iter().any(|allowed| allowed == EVERY || allowed.trim().eq_ignore_ascii_case(name))
    }

    /// The declared modes, numbered in the order of the file after `default`, which is number 0 and locks nothing.
    /// `None` where none is declared.
    #[must_use]
    pub fn declared_modes(&self) -> Option<PowerModes> {
        if self.clock_modes.is_empty() {
            return None;
        }
        let mode = |id: u32, name: &str, gpu_max: Option<Hertz>, knob: Knob| PowerMode {
            id,
            name: name.to_owned(),
            cores_online: None,
            cpu_max: None,
            gpu_max,
            memory_max: None,
            tpc_mask: None,
            sm_online: None,
            knob,
            settings: Vec::new(),
        };
        let hertz = |mhz: u32| Hertz(f64::from(mhz) * 1e6);
        let declared = (1..).zip(&self.clock_modes).map(|(id, clock)| {
            let (min, max) = (hertz(clock.min_mhz), hertz(clock.max_mhz));
            mode(id, &clock.name, Some(max), Knob::LockedClocks { min, max })
        });
        let modes = std::iter::once(mode(0, UNLOCKED, None, Knob::UnlockedClocks)).chain(declared).collect();
        Some(PowerModes { default: Some(0), modes, warnings: Vec::new(), source: "configuration".into() })
    }
}
