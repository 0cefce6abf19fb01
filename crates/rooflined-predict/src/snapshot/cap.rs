//! A cap that `nvidia-smi` sets on the clock or the power of a card or a GB10, by name.

use rooflined_core::board::ActiveMode;
use rooflined_core::hardware::Hardware;

/// A cap as a named operating point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cap {
    /// No clock above this one, in MHz.
    Clock(u32),
    /// No more than so many watts.
    Power(u32),
}

impl Cap {
    /// The cap of that name: `lgc-2000` or `pl-290`; `None` for any other name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let number = |digits: &str| digits.parse().ok().filter(|number| *number > 0);
        let name = name.trim();
        let of = |prefix| name.strip_prefix(prefix).and_then(number);
        of("lgc-").map(Self::Clock).or_else(|| of("pl-").map(Self::Power))
    }

    /// As a mode is named. Its number is that of its megahertz or watts.
    #[must_use]
    pub fn mode(self) -> ActiveMode {
        let (id, name) = match self {
            Self::Clock(mhz) => (mhz, format!("lgc-{mhz}")),
            Self::Power(watts) => (watts, format!("pl-{watts}")),
        };
        ActiveMode { id, name }
    }

    /// The command that sets it.
    #[must_use]
    pub fn command(self) -> String {
        match self {
            Self::Clock(mhz) => format!("sudo nvidia-smi -lgc 0,{mhz}"),
            Self::Power(watts) => format!("sudo nvidia-smi -pl {watts}"),
        }
    }

    /// The command that lifts it; `None` where the limit that held before is not known.
    #[must_use]
    pub fn undo(self, hardware: &Hardware) -> Option<String> {
        match self {
            Self::Clock(_) => Some("sudo nvidia-smi -rgc".to_owned()),
            Self::Power(_) => hardware.tdp.map(|stated| format!("sudo nvidia-smi -pl {:.0}", stated.get())),
        }
    }
}
