//! `null` where a field may be left out is the same as leaving it out, also where its value has a default.

use serde::{Deserialize, Deserializer};

/// The default for `null`.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// 1 for `null`.
pub fn or_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Option::<u64>::deserialize(deserializer).map(|value| value.unwrap_or(1))
}
