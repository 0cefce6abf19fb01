//! The checksum of a file: FNV-1a (64 bits; Fowler, Noll and Vo, draft-eastlake-fnv) of every byte before it, as the last
//! member of the JSON object. Each step of that hash is a bijection, so a change of any one byte changes the sum.

const BEFORE: &[u8] = b",\"checksum\":\"";
const BEHIND: &[u8] = b"\"}";
const DIGITS: usize = 16;

fn sum(bytes: &[u8]) -> String {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = bytes.iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:016x}")
}

/// The JSON object with its checksum.
pub(super) fn add(mut object: Vec<u8>) -> Vec<u8> {
    if object.last() == Some(&b'}') {
        object.pop();
        let sum = sum(&object);
        object.extend([BEFORE, sum.as_bytes(), BEHIND].concat());
    }
    object
}

/// Whether the object is as it was written. One without a checksum is of an earlier version.
///
/// # Errors
/// It is not.
pub(super) fn verify(object: &[u8]) -> Result<(), String> {
    let Some((rest, tail)) =
        object.split_at_checked(object.len().saturating_sub(BEFORE.len() + DIGITS + BEHIND.len()))
    else {
        return Ok(());
    };
    let Some(digits) = tail.strip_prefix(BEFORE).and_then(|tail| tail.strip_suffix(BEHIND)) else {
        return Ok(());
    };
    if sum(rest).as_bytes() == digits {
        return Ok(());
    }
    Err("damaged: it is not as it was written, because its checksum is another".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bit_that_flips_is_noticed_or_is_in_the_name_of_the_checksum() {
        let whole = add(br#"{"schema":2,"content":{"value":12.5}}"#.to_vec());
        assert_eq!(verify(&whole), Ok(()));
        let content = whole.len() - BEFORE.len() - DIGITS - BEHIND.len();
        for index in 0..content {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[index] ^= 1 << bit;
                assert!(verify(&flipped).is_err(), "{}", String::from_utf8_lossy(&flipped));
            }
        }
    }

    /// Of the reference implementation's test vectors.
    #[test]
    fn the_sum_is_fnv_1a() {
        assert_eq!(
            (sum(b""), sum(b"a"), sum(b"foobar")),
            ("cbf29ce484222325".to_owned(), "af63dc4c8601ec8c".to_owned(), "85944171f73967e8".to_owned(),)
        );
    }
}
