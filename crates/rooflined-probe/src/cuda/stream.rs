//! Bandwidth: arrays read, written, copied and added.

use super::driver::{Arg, Buffer, Function, GpuError, Graph, Launch};
use super::kernels::Entry;
use super::{CACHES_APART, Cuda, Job, LARGEST, POISON, WRONG, launch, words};
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, Seconds};
use rooflined_predict::calibration::{Step, Stream};

/// Words of the pattern that fills arrays; no multiple of any block, so that neighbours differ.
const PATTERN_WORDS: usize = 65_537 * 4;
/// The scalar of the triad; a power of two plus one, so that products round.
const SCALAR: f32 = 1.125;

/// The least that a plan takes for more than any cache holds.
const MEMORY: u64 = 8 << 20;

/// The array read beside every sample.
pub struct Reference {
    array: Buffer,
    // The kernel writes its sums here.
    _sums: Buffer,
    graph: Graph,
}

impl Reference {
    pub(super) fn bytes(&self) -> usize {
        self.array.bytes()
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What memory gave, by the fastest of some passes over the array.
    pub(super) fn rate(&self, times: &[Seconds]) -> BytesPerSecond {
        let fastest = times.iter().copied().reduce(Seconds::min).filter(|time| time.is_positive());
        #[expect(clippy::cast_precision_loss, reason = "bytes of a buffer")]
        fastest.map_or(BytesPerSecond(0.0), |time| Bytes(self.array.bytes() as f64) / time)
    }
}

/// What one pass moves over each byte of the working set.
const fn arrays(pattern: Stream) -> u64 {
    match pattern {
        Stream::Read | Stream::Write => 1,
        Stream::Copy => 2,
        Stream::Triad => 3,
    }
}

impl Cuda {
    /// Blocks and threads of a stream kernel on the SMs of a step.
    fn streaming(&mut self, name: &str, step: &Step) -> Result<(Function, &'static Entry, u32), GpuError> {
        let (function, entry) = self.kernel(name)?;
        let blocks = self.fill(function, entry, step)?;
        Ok((function, entry, blocks))
    }

    pub(super) fn reference(&mut self) -> Result<Reference, GpuError> {
        let bytes = (CACHES_APART * self.l2_bytes()).max(8 << 20).min(self.limit / 4) / 16 * 16;
        let all = Step {
            kernel: rooflined_predict::calibration::Kernel::Wake,
            threads: self.device.facts().sm_count,
            budget_s: 1.0,
        };
        let (function, entry, blocks) = self.streaming("stream_read", &all)?;
        let array = self.device.allocate(usize::try_from(bytes).unwrap_or(0))?;
        array.set(0x3b)?;
        let sums = self.device.allocate(blocks as usize * entry.threads as usize * 4)?;
        let args = vec![array.at(0), Arg::U64(bytes / 16), sums.at(0)];
        let graph = self.device.graph(&[launch(function, entry, blocks, args)])?;
        Ok(Reference { array, _sums: sums, graph })
    }

    /// `bytes` of all arrays together. Working sets that the second-level cache holds are read again and again within
    /// one launch, past the first level.
    pub(super) fn stream(&mut self, step: &Step, pattern: Stream, bytes: u64) -> Result<Job, GpuError> {
        let bytes = self.beyond_cache(pattern, bytes);
        let array = bytes / arrays(pattern) / 16 * 16;
        if bytes > LARGEST {
            return Err(GpuError::Step(format!("{bytes} bytes are more memory than any GPU has")));
        }
        if array == 0 {
            return Err(GpuError::Step(format!("{bytes} bytes are less than 16 for each array")));
        }
        if pattern == Stream::Read && array < CACHES_APART * self.l2_bytes() {
            return self.cached_read(step, array);
        }
        let copies = self.copies(array * arrays(pattern))?;
        let place = (array + 256).next_multiple_of(256);
        let wanted = place.saturating_mul(arrays(pattern)).saturating_mul(copies as u64);
        let (function, entry, blocks) = self.streaming(entry_of(pattern), step)?;
        let threads = u64::from(blocks) * u64::from(entry.threads);
        let mut buffers = self.allocate(&[wanted, threads * 4])?;
        let (data, sums) = match buffers.as_mut_slice() {
            [data, sums] => (data, sums),
            _ => return Err(GpuError::Step("no buffers".into())),
        };
        let pattern_bytes = pattern_of(&mut self.rng);
        let at = |copy: usize, index: u64| (copy as u64 * arrays(pattern) + index) * place;
        let offset = |copy: usize, index: u64| usize::try_from(at(copy, index)).unwrap_or(usize::MAX);
        let size = usize::try_from(array).unwrap_or(usize::MAX);
        let mut runs = Vec::new();
        for copy in 0..copies {
            // Arrays that are only written keep the poison.
            for index in u64::from(pattern != Stream::Read)..arrays(pattern) {
                data.repeat(offset(copy, index), &pattern_bytes, size)?;
            }
            let n16 = Arg::U64(array / 16);
            let args = match pattern {
                Stream::Read => vec![data.at(offset(copy, 0)), n16, sums.at(0)],
                Stream::Write => vec![data.at(offset(copy, 0)), n16, Arg::U32(7)],
                Stream::Copy => vec![data.at(offset(copy, 1)), data.at(offset(copy, 0)), n16],
                Stream::Triad => vec![
                    data.at(offset(copy, 0)),
                    data.at(offset(copy, 1)),
                    data.at(offset(copy, 2)),
                    Arg::F32(SCALAR),
                    n16,
                ],
            };
            runs.push(vec![launch(function, entry, blocks, args)]);
        }
        let error = self.checked(step, pattern, &runs[0], data, size, sums, &pattern_bytes)?;
        #[expect(clippy::cast_precision_loss, reason = "bytes of a buffer")]
        let moved = (array * arrays(pattern)) as f64;
        let flops = match pattern {
            Stream::Read => moved / 4.0,
            Stream::Triad => moved / 3.0 / 4.0 * 2.0,
            Stream::Write | Stream::Copy => 0.0,
        };
        Ok(Job {
            runs,
            flops: Flops(flops),
            bytes: Bytes(moved),
            weights: 0.0,
            error: Some(error),
            _buffers: buffers,
        })
    }

    /// The plan's largest read is meant to come from memory: where the device's cache is larger than the plan took it for,
    /// the array grows with it.
    pub(super) fn beyond_cache(&self, pattern: Stream, bytes: u64) -> u64 {
        let large = bytes >= self.device.facts().l2_bytes.min(MEMORY);
        let meant = pattern == Stream::Read && bytes == self.memory_read && large;
        if meant { bytes.max(CACHES_APART * self.l2_bytes()) } else { bytes }
    }

    /// Runs once over the first copy and compares every word: of what is written the sum that the device itself takes of
    /// it, which the check of reading has shown to be right, and the words of its beginning and end.
    #[expect(clippy::too_many_arguments, reason = "the parts of a job that is not complete yet")]
    fn checked(
        &mut self,
        step: &Step,
        pattern: Stream,
        run: &[Launch],
        data: &Buffer,
        size: usize,
        sums: &Buffer,
        filled: &[u8],
    ) -> Result<f64, GpuError> {
        const LOOKED_AT: usize = 1 << 16;
        sums.set(POISON)?;
        if pattern != Stream::Read {
            data.repeat(0, &[POISON; 256], size)?;
        }
        self.device.run(run)?;
        let wanted = |word: usize| -> u32 {
            let at = word % PATTERN_WORDS * 4;
            let value = u32::from_le_bytes([filled[at], filled[at + 1], filled[at + 2], filled[at + 3]]);
            match pattern {
                Stream::Read | Stream::Copy => value,
                #[expect(clippy::cast_possible_truncation, reason = "the kernel wraps too")]
                Stream::Write => (word as u32).wrapping_add(7),
                Stream::Triad => {
                    let value = f32::from_bits(value);
                    SCALAR.mul_add(value, value).to_bits()
                }
            }
        };
        let count = size / 4;
        let sum = (0..count).fold(0_u32, |sum, word| sum.wrapping_add(wanted(word)));
        if pattern != Stream::Read {
            let (function, entry, blocks) = self.streaming("stream_read", step)?;
            let threads = blocks as usize * entry.threads as usize;
            let sums = self.device.allocate(threads * 4)?;
            sums.set(POISON)?;
            let args = vec![data.at(0), Arg::U64(count as u64 / 4), sums.at(0)];
            self.device.run(&[launch(function, entry, blocks, args)])?;
            let found = words(&sums.read(0, threads * 4)?).fold(0_u32, u32::wrapping_add);
            let looked = LOOKED_AT.min(size);
            let first = data.read(0, looked)?;
            let last = data.read(size - looked, looked)?;
            let differ = |bytes: &[u8], from: usize| {
                words(bytes).enumerate().any(|(i, word)| word != wanted(from + i))
            };
            let wrong = found != sum || differ(&first, 0) || differ(&last, (size - looked) / 4);
            return Ok(if wrong { WRONG } else { 0.0 });
        }
        let found = words(&sums.read(0, sums.bytes())?).fold(0_u32, u32::wrapping_add);
        Ok(if found == sum { 0.0 } else { WRONG })
    }

    fn cached_read(&mut self, step: &Step, array: u64) -> Result<Job, GpuError> {
        /// Bytes of one launch, so that its start does not show.
        const MOVED: u64 = 64 << 20;
        let (function, entry, blocks) = self.streaming("l2_read", step)?;
        let threads = u64::from(blocks) * u64::from(entry.threads);
        let buffers = self.allocate(&[array, threads * 4])?;
        let (Some(data), Some(sums)) = (buffers.first(), buffers.get(1)) else {
            return Err(GpuError::Step("no buffers".into()));
        };
        let pattern = pattern_of(&mut self.rng);
        let size = usize::try_from(array).unwrap_or(usize::MAX);
        data.repeat(0, &pattern, size)?;
        // A GPU that is slow enough to be interpreted moves less.
        let moved = MOVED.min(64 * self.l2_bytes());
        let passes = u32::try_from((moved / array).clamp(1, 1 << 16)).unwrap_or(1);
        sums.set(POISON)?;
        let args = vec![data.at(0), Arg::U64(array / 16), Arg::U32(passes), sums.at(0)];
        let run = vec![launch(function, entry, blocks, args)];
        self.device.run(&run)?;
        let found = words(&sums.read(0, sums.bytes())?).fold(0_u32, u32::wrapping_add);
        let sum = words(&pattern).cycle_to(size / 4).fold(0_u32, u32::wrapping_add).wrapping_mul(passes);
        #[expect(clippy::cast_precision_loss, reason = "bytes of a launch")]
        let bytes = array as f64 * f64::from(passes);
        Ok(Job {
            runs: vec![run],
            flops: Flops(bytes / 4.0),
            bytes: Bytes(bytes),
            weights: 0.0,
            error: Some(if found == sum { 0.0 } else { WRONG }),
            _buffers: buffers,
        })
    }
}

trait CycleTo: Iterator<Item = u32> + Sized {
    /// The first `count` of the endless repetition.
    fn cycle_to(self, count: usize) -> std::vec::IntoIter<u32> {
        let once: Vec<u32> = self.collect();
        (0..count).map(|i| once[i % once.len()]).collect::<Vec<_>>().into_iter()
    }
}

impl<I: Iterator<Item = u32>> CycleTo for I {}

/// Floats of magnitude 0.5 to 1 as bytes.
fn pattern_of(rng: &mut fastrand::Rng) -> Vec<u8> {
    (0..PATTERN_WORDS).flat_map(|_| (0.5 + 0.5 * rng.f32()).to_le_bytes()).collect()
}

pub(super) const fn entry_of(pattern: Stream) -> &'static str {
    match pattern {
        Stream::Read => "stream_read",
        Stream::Write => "stream_write",
        Stream::Copy => "stream_copy",
        Stream::Triad => "stream_triad",
    }
}
