//! Sizes for the dimensions that a file leaves open.

use std::collections::BTreeMap;

use super::error::shown;

/// Largest size of one dimension.
pub const MAX_SIZE: u64 = 1 << 31;

/// Values for open dimensions of a network's inputs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dimensions {
    /// By the name of the dimension, such as `batch`, or by input and place, such as `images.0`.
    pub values: BTreeMap<String, u64>,
    /// Height and width of the picture: for the open last two dimensions of inputs with four, or the open middle two where
    /// the last one is fixed at no more than four channels.
    pub size: Option<(u64, u64)>,
}

impl Dimensions {
    /// Reads `name=value`, as `--dim` takes it.
    ///
    /// # Errors
    /// Says how it is written.
    pub fn parse_value(text: &str) -> Result<(String, u64), String> {
        let (name, value) = text.rsplit_once('=').unwrap_or((text, ""));
        match value.parse() {
            Ok(value @ 1..=MAX_SIZE) if !name.is_empty() => Ok((name.to_owned(), value)),
            _ => Err(format!("{text:?} is not NAME=SIZE, as in batch=1")),
        }
    }

    /// Reads `HEIGHTxWIDTH`, as `--size` takes it; one number is both.
    ///
    /// # Errors
    /// Says how it is written.
    pub fn parse_size(text: &str) -> Result<(u64, u64), String> {
        let (height, width) = text.split_once('x').unwrap_or((text, text));
        match (height.parse(), width.parse()) {
            (Ok(height @ 1..=MAX_SIZE), Ok(width @ 1..=MAX_SIZE)) => Ok((height, width)),
            _ => Err(format!("{text:?} is not HEIGHTxWIDTH, as in 640x640")),
        }
    }

    /// Checks sizes that were not read from text.
    ///
    /// # Errors
    /// Names the first that no dimension has.
    pub fn check(&self) -> Result<(), String> {
        let picture =
            self.size.into_iter().flat_map(|(height, width)| [("height", height), ("width", width)]);
        let named = self.values.iter().map(|(name, size)| (name.as_str(), *size));
        match named.chain(picture).find(|(_, size)| !(1..=MAX_SIZE).contains(size)) {
            Some((name, size)) => Err(format!("{:?} is {size}; 1 to {MAX_SIZE} is taken", shown(name))),
            None => Ok(()),
        }
    }

    /// The value for a dimension of the input `input` at `place`, which the file calls `name` or nothing. `picture` is 0
    /// where it is the height of a picture and 1 where it is the width.
    pub(super) fn value(
        &self,
        input: &str,
        place: usize,
        name: Option<&str>,
        picture: Option<usize>,
    ) -> Option<u64> {
        let by_place = self.values.get(&format!("{input}.{place}"));
        let by_name = || name.and_then(|name| self.values.get(name));
        let by_size = || Some(if picture? == 0 { self.size?.0 } else { self.size?.1 });
        by_place.or_else(by_name).copied().or_else(by_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_values_are_read_as_the_options_write_them() {
        assert_eq!(Dimensions::parse_size("480x640"), Ok((480, 640)));
        assert_eq!(Dimensions::parse_size("640"), Ok((640, 640)));
        assert_eq!(Dimensions::parse_value("batch=8"), Ok(("batch".to_owned(), 8)));
        assert_eq!(Dimensions::parse_value("a=b=8"), Ok(("a=b".to_owned(), 8)));
        for wrong in ["", "x", "640x", "x640", "-1x3", "640X640", "0x640", "99999999999x2"] {
            assert!(Dimensions::parse_size(wrong).is_err(), "{wrong}");
        }
        for wrong in ["batch", "batch=", "=3", "batch=0", "batch=-1", "batch=1.5"] {
            assert!(Dimensions::parse_value(wrong).is_err(), "{wrong}");
        }
    }
}
