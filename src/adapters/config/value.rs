//! What a key may hold.

use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use decide::snapshot::Automatic;

pub(super) trait Value: Sized {
    /// In words, for a message.
    const EXPECTED: &'static str;

    /// `None` for a value of another type.
    fn from_toml(value: &DeValue<'_>) -> Option<Self>;
}

pub(super) trait Ranged: Value + PartialOrd + ToString {
    /// What is expected of a value in `range`.
    fn expected(range: &RangeInclusive<Self>) -> String {
        format!("{} from {} to {}", Self::EXPECTED, range.start().to_string(), range.end().to_string())
    }
}

impl Ranged for f64 {}
impl Ranged for u32 {}
impl Ranged for u64 {}

impl Value for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_bool()
    }
}

impl Value for f64 {
    const EXPECTED: &'static str = "a number";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        match value {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(_) => u64::from_toml(value).map(|whole| whole as Self),
            _ => None,
        }
    }
}

impl Value for u64 {
    const EXPECTED: &'static str = "a whole number";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        let integer = value.as_integer()?;
        Self::from_str_radix(integer.as_str(), integer.radix()).ok()
    }
}

impl Value for u32 {
    const EXPECTED: &'static str = "a whole number";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        u64::from_toml(value)?.try_into().ok()
    }
}

impl Value for Vec<String> {
    const EXPECTED: &'static str = "a list of strings, such as [\"15W\", \"25W\"]";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_array()?.iter().map(|element| element.get_ref().as_str().map(str::to_owned)).collect()
    }
}

impl Value for PathBuf {
    const EXPECTED: &'static str = "an absolute path";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_str().map(Self::from).filter(|path| path.is_absolute())
    }
}

impl Value for Vec<PathBuf> {
    const EXPECTED: &'static str = "a list of absolute paths without \"..\", such as [\"/srv/models\"]";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        let climbs = |path: &Path| path.components().any(|part| part == Component::ParentDir);
        let path = |element: &DeValue<'_>| PathBuf::from_toml(element).filter(|path| !climbs(path));
        value.as_array()?.iter().map(|element| path(element.get_ref())).collect()
    }
}

/// A directory that the daemon chooses by the rights it has unless it is named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

impl Value for Location {
    const EXPECTED: &'static str = "\"auto\" or an absolute path";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        if value.as_str() == Some("auto") {
            Some(Self::Auto)
        } else {
            PathBuf::from_toml(value).map(Self::Path)
        }
    }
}

impl Serialize for Location {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Path(path) => path.serialize(serializer),
        }
    }
}

/// The message bus that the daemon appears on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

impl std::str::FromStr for Bus {
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
            _ => Err(Self::EXPECTED),
        }
    }
}

impl Value for Bus {
    const EXPECTED: &'static str =
        "\"system\", \"session\", \"none\" or an address such as \"unix:path=/run/bus\"";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
}

impl Serialize for Bus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::System => "system",
            Self::Session => "session",
            Self::None => "none",
            Self::Address(address) => address,
        })
    }
}

/// What predictions are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// The GPU of a board that shares its memory with the CPU, else the CPU.
    #[default]
    Auto,
    Cpu,
    /// The GPU, on a card as well.
    Gpu,
}

impl Value for Accelerator {
    const EXPECTED: &'static str = "\"auto\", \"cpu\" or \"gpu\"";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        Some(match value.as_str()? {
            "auto" => Self::Auto,
            "cpu" => Self::Cpu,
            "gpu" => Self::Gpu,
            _ => return None,
        })
    }
}

impl Value for Automatic {
    const EXPECTED: &'static str = "\"off\", \"advise\" or \"switch\"";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        let named = value.as_str()?;
        [Self::Off, Self::Advise, Self::Switch].into_iter().find(|policy| policy.key() == named)
    }
}
