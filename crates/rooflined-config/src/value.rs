//! Values of keys that are not plain numbers, texts or lists.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A directory that the daemon chooses by the rights it has unless it is named.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Location {
    /// Below /run and /var/lib for a system service, in the user's own directories otherwise.
    #[default]
    Auto,
    Path(PathBuf),
}

impl Location {
    /// The directory named; `None` where it is left to the daemon.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Auto => None,
            Self::Path(path) => Some(path),
        }
    }
}

impl TryFrom<String> for Location {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.as_str() {
            "auto" => Ok(Self::Auto),
            path if Path::new(path).is_absolute() => Ok(Self::Path(text.into())),
            _ => Err("expected \"auto\" or an absolute path"),
        }
    }
}

impl From<Location> for String {
    fn from(location: Location) -> Self {
        // Read from a file of UTF-8 text.
        location.path().map_or_else(|| "auto".to_owned(), |path| path.to_string_lossy().into_owned())
    }
}

/// The message bus that the daemon appears on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Bus {
    /// The bus of the machine.
    #[default]
    System,
    /// The bus of the user's session.
    Session,
    /// No bus: the daemon is reached over HTTP alone.
    None,
    /// The bus at a D-Bus address.
    Address(String),
}

impl FromStr for Bus {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "system" => Ok(Self::System),
            "session" => Ok(Self::Session),
            "none" => Ok(Self::None),
            // D-Bus specification: "transport:key=value,…".
            address if address.split_once(':').is_some_and(|(transport, _)| !transport.is_empty()) => {
                Ok(Self::Address(address.to_owned()))
            }
            _ => {
                Err("expected \"system\", \"session\", \"none\" or an address such as \"unix:path=/run/bus\"")
            }
        }
    }
}

impl TryFrom<String> for Bus {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "system",
            Self::Session => "session",
            Self::None => "none",
            Self::Address(address) => address,
        })
    }
}

impl From<Bus> for String {
    fn from(bus: Bus) -> Self {
        bus.to_string()
    }
}

/// What predictions are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// The GPU of a board that shares its memory with the CPU, else the CPU.
    #[default]
    Auto,
    Cpu,
    /// The GPU, on a card as well.
    Gpu,
}
