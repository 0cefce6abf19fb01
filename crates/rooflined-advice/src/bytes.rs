//! How large an answer is as JSON, and how large one may be.

use std::io;

use serde::Serialize;

/// Most bytes of one answer. A client that reads none of it keeps them in the daemon's memory.
pub const MAX_ANSWER_BYTES: usize = 8_000_000;

/// Counts what is written.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of `value` as JSON. What cannot be written has none.
pub fn length_of(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_or(0, |()| count.0)
}
