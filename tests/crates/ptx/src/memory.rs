//! Global memory: what a kernel's loads and stores reach.

use std::collections::BTreeMap;

/// Memory behind the global addresses of a launch.
///
/// Neighbouring lanes are read and written together, so one call may cover a whole warp's bytes.
pub trait Memory {
    /// Fills `into` from `address` on, or says why those bytes are not the kernel's to read.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), String>;
    /// Stores `from` at `address`, or says why those bytes are not the kernel's to write.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String>;
    /// A load, store or atomic operation on global memory begins: the accesses until the next call are those of its
    /// lanes. `cached` is false for what goes past L1. A model of the caches wants to know.
    fn warp(&mut self, block: u64, warp: u32, cached: bool) {
        let _ = (block, warp, cached);
    }
    /// What `%clock64` says in a warp that has executed so many instructions. A model of a GPU that other processes use
    /// as well adds what they took.
    fn clock(&self, executed: u64) -> u64 {
        executed
    }
}

/// Allocations with gaps that belong to nobody, so that no stray access meets a neighbour's bytes.
#[derive(Default)]
pub struct Arena {
    allocations: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

/// Where the first allocation lies: far from the small numbers that a null pointer plus an index gives.
const BASE: u64 = 0x7f00_0000_0000;
const ALIGNMENT: u64 = 256;
const GUARD: u64 = 64 << 10;

impl Arena {
    /// An arena without allocations.
    pub fn new() -> Self {
        Self { allocations: BTreeMap::new(), next: BASE }
    }

    /// The address, a multiple of 256, of `bytes` zeroed bytes. No address is ever given twice.
    pub fn alloc(&mut self, bytes: usize) -> u64 {
        let address = self.next.max(BASE);
        self.next = (address + bytes as u64).next_multiple_of(ALIGNMENT) + GUARD;
        self.allocations.insert(address, vec![0; bytes]);
        address
    }

    /// Ends the allocation that starts at `address`.
    pub fn free(&mut self, address: u64) -> Result<(), String> {
        match self.allocations.remove(&address) {
            Some(_) => Ok(()),
            None => Err(format!("no allocation starts at {address:#x}; free what alloc gave, once")),
        }
    }

    /// The bytes of the allocation that starts at `address`.
    pub fn bytes(&self, address: u64) -> Option<&[u8]> {
        self.allocations.get(&address).map(Vec::as_slice)
    }

    /// The bytes of the allocation that starts at `address`, to be changed.
    pub fn bytes_mut(&mut self, address: u64) -> Option<&mut [u8]> {
        self.allocations.get_mut(&address).map(Vec::as_mut_slice)
    }

    /// A new allocation that holds `content`.
    pub fn place(&mut self, content: &[u8]) -> u64 {
        let address = self.alloc(content.len());
        if let Some(bytes) = self.bytes_mut(address) {
            bytes.copy_from_slice(content);
        }
        address
    }

    /// The part of one allocation that `length` bytes from `address` on cover.
    fn part(&mut self, address: u64, length: usize) -> Result<&mut [u8], String> {
        let Some((&start, bytes)) = self.allocations.range_mut(..=address).next_back() else {
            return Err(format!("{length} bytes at {address:#x} lie below every allocation"));
        };
        let offset = address - start;
        let size = bytes.len();
        usize::try_from(offset)
            .ok()
            .and_then(|first| bytes.get_mut(first..first.checked_add(length)?))
            .ok_or_else(|| {
                format!(
                    "{length} bytes at {address:#x} lie {offset} bytes into the {size} bytes from {start:#x}"
                )
            })
    }
}

impl Memory for Arena {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), String> {
        into.copy_from_slice(self.part(address, into.len())?);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String> {
        self.part(address, from.len())?.copy_from_slice(from);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_past_the_end_or_after_free_is_an_error() {
        let mut arena = Arena::new();
        let first = arena.place(&[1, 2, 3, 4]);
        let second = arena.alloc(0);
        assert_eq!(first % 256, 0);
        assert!(second >= first + 4 + GUARD);
        let mut word = [0; 4];
        arena.read(first, &mut word).unwrap();
        assert_eq!(word, [1, 2, 3, 4]);
        assert!(arena.read(first + 1, &mut word).unwrap_err().contains("1 bytes into the 4"));
        assert!(arena.write(second, &word).is_err());
        assert!(arena.write(first - 1, &[0]).is_err());
        assert!(arena.read(u64::MAX, &mut word).is_err());
        arena.free(first).unwrap();
        assert!(arena.free(first).is_err());
        assert!(arena.read(first, &mut word).is_err());
    }
}
