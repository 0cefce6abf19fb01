//! Matrices in shared memory as `wgmma` and `tcgen05` find them: descriptors, canonical layouts and swizzles.
//!
//! A matrix is made of chunks of 16 bytes along its major dimension. K-major chunk c of row r lies, from the start
//! address, at 16 (r mod 8) + SBO (r / 8) + LBO c without a swizzle, and at W (r mod 8) + SBO (r / 8) + 16 c with one of
//! W bytes, for which LBO is not used. MN-major chunk m of depth k lies at SBO m + 16 (k mod 8) + LBO (k / 8), and with
//! a swizzle of W bytes, w = W / 16, at 16 (m mod w) + LBO (m / w) + W (k mod 8) + SBO (k / 8). A swizzle then changes
//! the address itself: bits 4 and up by the bits from 7 on, as many as w has places, counted from the base offset.

use crate::mma::Element;
use crate::shared::{Ranges, Shared, Thread};
use crate::warp::Trouble;

/// A descriptor as its fields say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    start: u64,
    leading: u64,
    stride: u64,
    base: u64,
    /// Bytes of the swizzle, 16 where there is none.
    swizzle: u64,
}

/// Bytes of a chunk.
const CHUNK: u64 = 16;
/// Addresses have 18 bits.
const ADDRESSES: u64 = 0x3ffff;

const fn field(word: u64, first: u32, bits: u32) -> u64 {
    word >> first & ((1 << bits) - 1)
}

fn refused(word: u64, what: &str) -> Trouble {
    Trouble::Descriptor { what: format!("matrix descriptor {word:#018x}: {what}") }
}

impl Descriptor {
    /// PTX ISA, "Matrix Descriptor Format" of `wgmma`.
    pub fn of_warpgroup(word: u64) -> Result<Self, Trouble> {
        let swizzle = match field(word, 62, 2) {
            0 => 16,
            1 => 128,
            2 => 64,
            _ => 32,
        };
        if field(word, 14, 2) | field(word, 30, 2) | field(word, 46, 3) | field(word, 52, 10) != 0 {
            return Err(refused(word, "a reserved bit is set"));
        }
        Self::checked(word, swizzle)
    }

    /// PTX ISA, "Shared memory descriptor" of `tcgen05`.
    pub fn of_tensor(word: u64) -> Result<Self, Trouble> {
        let swizzle = match field(word, 61, 3) {
            0 => 16,
            2 => 128,
            4 => 64,
            6 => 32,
            1 => return Err(refused(word, "a swizzle of 128 bytes in atoms of 32 is not known here")),
            _ => return Err(refused(word, "its swizzle mode is invalid")),
        };
        if field(word, 46, 3) != 1 {
            return Err(refused(word, "bits 46 to 48 are not 0b001"));
        }
        if field(word, 14, 2) | field(word, 30, 2) | field(word, 53, 8) != 0 {
            return Err(refused(word, "a reserved bit is set"));
        }
        if field(word, 52, 1) != 0 {
            return Err(refused(word, "an absolute leading dimension is for 48 bytes of depth only"));
        }
        Self::checked(word, swizzle)
    }

    fn checked(word: u64, swizzle: u64) -> Result<Self, Trouble> {
        let base = field(word, 49, 3);
        if swizzle == CHUNK && base != 0 {
            return Err(refused(word, "a base offset without a swizzle"));
        }
        let bytes = |first| field(word, first, 14) << 4;
        Ok(Self { start: bytes(0), leading: bytes(16), stride: bytes(32), base, swizzle })
    }

    /// The address of a chunk: of a row and its place along the depth, or of a depth and its place along the rows.
    fn address(&self, transposed: bool, line: u64, chunk: u64) -> u64 {
        let &Self { start, leading, stride, base, swizzle } = self;
        let is_plain = swizzle == CHUNK;
        let (eights, one) = (line / 8, line % 8);
        let offset = match (transposed, is_plain) {
            (false, true) => CHUNK * one + stride * eights + leading * chunk,
            (false, false) => swizzle * one + stride * eights + CHUNK * chunk,
            (true, true) => CHUNK * one + leading * eights + stride * chunk,
            (true, false) => {
                let width = swizzle / CHUNK;
                CHUNK * (chunk % width) + leading * (chunk / width) + swizzle * one + stride * eights
            }
        };
        let address = (start + offset) & ADDRESSES;
        let phase = (address >> 7).wrapping_sub(base) & (swizzle / CHUNK - 1);
        address ^ phase << 4
    }
}

/// Rows of a factor that an instruction reads.
#[derive(Debug, Clone)]
pub(crate) struct Factor {
    pub descriptor: Descriptor,
    /// MN-major.
    pub transposed: bool,
    pub rows: std::ops::Range<usize>,
    pub depth: usize,
    pub bits: usize,
    pub element: Element,
    pub negated: bool,
}

impl Factor {
    /// Its elements, row after row. What is read stays in use until `ranges` are released.
    pub fn read(
        &self,
        shared: &mut Shared,
        thread: Thread,
        ends_with_warp: bool,
        ranges: &mut Ranges,
    ) -> Result<Vec<f64>, Trouble> {
        let &Self { ref descriptor, transposed, ref rows, depth, bits, element, negated } = self;
        let mut values = vec![0.0; rows.len() * depth];
        let each = 128 / bits;
        let (lines, chunks) = if transposed {
            (0..depth, rows.start / each..rows.end.div_ceil(each))
        } else {
            (rows.clone(), 0..depth / each)
        };
        for line in lines {
            for chunk in chunks.clone() {
                let mut bytes = [0; CHUNK as usize];
                let address = descriptor.address(transposed, line as u64, chunk as u64);
                ranges.push(shared.read_async(thread, address, &mut bytes, ends_with_warp)?);
                let words = bytes
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .flat_map(|&word| (0..32 / bits).map(move |at| (u32::from_le_bytes(word), at)));
                for (e, (word, at)) in words.enumerate() {
                    let (row, k) =
                        if transposed { (chunk * each + e, line) } else { (line, chunk * each + e) };
                    if rows.contains(&row) {
                        let value = element.value(word, at, bits);
                        values[(row - rows.start) * depth + k] = if negated { -value } else { value };
                    }
                }
            }
        }
        Ok(values)
    }
}

/// Adds the products of rows of `left` and rows of `right` to `sums`, row after row of `left`.
pub(crate) fn multiply(sums: &mut [f64], left: &[f64], right: &[f64], depth: usize) {
    let columns = right.len() / depth;
    let mut across = vec![0.0; right.len()];
    for (column, row) in right.chunks_exact(depth).enumerate() {
        for (k, &value) in row.iter().enumerate() {
            across[k * columns + column] = value;
        }
    }
    for (sums, left) in sums.chunks_exact_mut(columns).zip(left.chunks_exact(depth)) {
        for (&a, row) in left.iter().zip(across.chunks_exact(columns)) {
            for (sum, &b) in sums.iter_mut().zip(row) {
                *sum += a * b;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layouts as CUTLASS writes them in its descriptors' headers, for 128-bit elements.
    #[test]
    fn chunks_lie_where_the_canonical_layouts_have_them() {
        let of = |swizzle: u64, start: u64| {
            let word = start >> 4 | (256 >> 4) << 16 | (2048 >> 4) << 32 | 1 << 46 | swizzle << 61;
            Descriptor::of_tensor(word).unwrap()
        };
        let plain = of(0, 0);
        assert_eq!(plain.address(false, 11, 1), 3 * 16 + 2048 + 256);
        assert_eq!(plain.address(true, 11, 3), 3 * 16 + 256 + 3 * 2048);
        // Row 3 of 32 bytes stands in the first 128, row 5 in the second, whose halves change places.
        assert_eq!(of(6, 0).address(false, 3, 1), 3 * 32 + 16);
        assert_eq!(of(6, 0).address(false, 5, 1), 5 * 32);
        assert_eq!(of(4, 0).address(false, 13, 1), 2048 + 5 * 64 + (1 ^ 2) * 16);
        assert_eq!(of(2, 0).address(false, 13, 1), 2048 + 5 * 128 + (1 ^ 5) * 16);
        // Two chunks further along the depth by the start address: the swizzle is that of the whole address.
        assert_eq!(of(2, 32).address(false, 5, 1), 5 * 128 + (3 ^ 5) * 16);
        // The leading offset counts: depth 9 of the second eight chunks is in the third 128 bytes of its atom.
        assert_eq!(of(2, 0).address(true, 9, 10), 16 + 256 + 128 + 2048);
        let shifted = Descriptor { base: 1, ..of(2, 128) };
        assert_eq!(shifted.address(false, 0, 1), 128 + 16);
    }

    #[test]
    fn descriptors_that_the_isa_has_not_are_refused() {
        let tensor = 1_u64 << 46 | 4 << 61;
        assert!(Descriptor::of_tensor(tensor).is_ok());
        for bit in [14, 30, 46, 47, 48, 52, 53, 60, 61] {
            assert!(Descriptor::of_tensor(tensor ^ 1 << bit).is_err(), "bit {bit}");
        }
        for bit in [14, 15, 30, 31, 46, 47, 48, 52, 61] {
            assert!(Descriptor::of_warpgroup(1 << 62 ^ 1 << bit).is_err(), "bit {bit}");
        }
        assert!(Descriptor::of_warpgroup(1 << 49).is_err());
        assert!(Descriptor::of_warpgroup(1 << 62 | 1 << 49).is_ok());
    }
}
