//! Memory that all workers of a kernel use.

/// A pointer that workers may share; who touches what is settled where it is used.
#[derive(Clone, Copy)]
pub struct Shared<T>(pub *mut T);
// SAFETY: workers use disjoint parts, see the uses.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// That many further.
    pub fn at(self, offset: usize) -> *mut T {
        self.0.wrapping_add(offset)
    }
}
