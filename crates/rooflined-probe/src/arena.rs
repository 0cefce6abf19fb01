//! Buffers that live as long as the probe: one region per worker, touched first by that worker.
//!
//! Pages are asked for as huge pages, so that address translation is no part of a bandwidth. Regions are mapped
//! once; fresh pages for every step would cost more than the step.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Every buffer starts at a multiple of this: a huge page, and with it every vector and cache line.
pub const HUGE_PAGE: usize = 2 << 20;

/// Anonymous memory, zero and untouched at first.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the `Region` alone; who may access which part is the business of those who
// dereference `start`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `len` bytes (none for 0).
    pub fn new(len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self { start: NonNull::dangling(), len: 0 });
        }
        let len = len.next_multiple_of(HUGE_PAGE);
        // The kernel places large anonymous maps at huge-page boundaries since 6.7; before that, over-map and trim.
        let mapped = len + HUGE_PAGE;
        // SAFETY: a fresh anonymous mapping overlaps nothing.
        let raw = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let lead = raw.align_offset(HUGE_PAGE).min(HUGE_PAGE);
        let start = raw.cast::<u8>().wrapping_add(lead);
        // SAFETY: both ranges lie inside the mapping just made and outside the part kept; nothing points into them.
        unsafe {
            if lead > 0 {
                munmap(raw, lead)?;
            }
            if lead < HUGE_PAGE {
                munmap(start.wrapping_add(len).cast(), HUGE_PAGE - lead)?;
            }
            // Kernels without transparent huge pages refuse; the buffer works all the same.
            let _ = madvise(start.cast(), len, Advice::LinuxHugepage);
        }
        NonNull::new(start).map(|start| Self { start, len }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping was made by `new` and nobody holds a pointer past the region's life.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// Repeats `pattern` over `len` bytes from `to`.
///
/// # Safety
/// `to..to+len` is valid for writes by this thread alone.
pub unsafe fn replicate(pattern: &[u8], to: *mut u8, len: usize) {
    if pattern.is_empty() {
        return;
    }
    let mut done = 0;
    while done < len {
        let part = pattern.len().min(len - done);
        // SAFETY: `done + part <= len`, and the pattern is borrowed, hence elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(pattern.as_ptr(), to.add(done), part) };
        done += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_zeroed_and_filled_by_repetition() {
        let region = Region::new(3_000_000).unwrap();
        assert_eq!(region.start() as usize % HUGE_PAGE, 0);
        assert!(region.len() >= 3_000_000);
        // SAFETY: the region is this test's own.
        let bytes = unsafe { std::slice::from_raw_parts_mut(region.start(), region.len()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        // SAFETY: as above.
        unsafe { replicate(&[1, 2, 3], region.start(), 8) };
        assert_eq!(bytes[..9], [1, 2, 3, 1, 2, 3, 1, 2, 0]);
        assert_eq!(Region::new(0).unwrap().len(), 0);
    }
}
