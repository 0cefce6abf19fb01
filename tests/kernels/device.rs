//! Memory for kernels under test: every byte's reads and writes are counted, and what is not the kernel's is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;

use ptx::{Arena, Counts, Entry, Fault, Launch, Memory, Module};

/// No kernel here needs more warp instructions for a test.
const LIMIT: u64 = 50_000_000;
/// What outputs hold before: a negative number in every format, and never a right result.
const POISON: u8 = 0xcb;

/// A module of `kernels/ptx`.
pub fn module(name: &str) -> Module {
    Module::parse(&text(name)).unwrap_or_else(|error| panic!("{name}.ptx: {error}"))
}

/// The text of a module of `kernels/ptx`.
pub fn text(name: &str) -> String {
    let path = directory().join(format!("{name}.ptx"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Where the shipped modules are.
pub fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/ptx"))
}

/// Bytes that a kernel may use, at a multiple of 16 and not of 32.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    pub address: u64,
    allocation: u64,
    bytes: usize,
}

impl Buffer {
    /// The parameter that points to it.
    pub fn param(self) -> Vec<u8> {
        self.address.to_le_bytes().to_vec()
    }
}

struct Use {
    output: bool,
    allocation: u64,
    read: Vec<u32>,
    written: Vec<u32>,
}

/// Buffers, and what was done with each byte.
pub struct Device {
    arena: Arena,
    uses: BTreeMap<u64, Use>,
}

/// Buffers begin here in their allocations, so that more than 16 bytes of alignment cannot be counted on.
const OFFSET: usize = 16;

impl Device {
    pub fn new() -> Self {
        Self { arena: Arena::new(), uses: BTreeMap::new() }
    }

    /// Bytes that the kernel may read.
    pub fn input(&mut self, content: &[u8]) -> Buffer {
        self.buffer(content, false)
    }

    /// Poisoned bytes that the kernel is to write.
    pub fn output(&mut self, bytes: usize) -> Buffer {
        self.buffer(&vec![POISON; bytes], true)
    }

    fn buffer(&mut self, content: &[u8], output: bool) -> Buffer {
        let bytes = content.len();
        let allocation = self.arena.place(&[&[POISON; OFFSET], content].concat());
        let address = allocation + OFFSET as u64;
        let use_of = Use { output, allocation, read: vec![0; bytes], written: vec![0; bytes] };
        self.uses.insert(address, use_of);
        Buffer { address, allocation, bytes }
    }

    /// Runs the entry; a fault fails the test with its own words.
    pub fn launch(&mut self, entry: &Entry, grid: u32, threads: u32, params: &[Vec<u8>]) -> Counts {
        self.attempt(entry, grid, threads, params, LIMIT).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Runs the entry, or says why it stopped.
    pub fn attempt(
        &mut self,
        entry: &Entry,
        grid: u32,
        threads: u32,
        params: &[Vec<u8>],
        limit: u64,
    ) -> Result<Counts, Fault> {
        let launch = Launch { grid: [grid, 1, 1], block: [threads, 1, 1], shared_bytes: 0, params, limit };
        ptx::launch(entry, &launch, self)
    }

    pub fn bytes(&self, buffer: Buffer) -> &[u8] {
        &self.arena.bytes(buffer.allocation).unwrap()[OFFSET..]
    }

    pub fn words(&self, buffer: Buffer) -> Vec<u32> {
        self.bytes(buffer).chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    pub fn floats(&self, buffer: Buffer) -> Vec<f32> {
        self.words(buffer).into_iter().map(f32::from_bits).collect()
    }

    /// Whether every byte of an output is written once.
    pub fn is_written_once(&self, buffer: Buffer) -> bool {
        self.uses[&buffer.address].written.iter().all(|&times| times == 1)
    }

    /// Every byte of an output is written once.
    pub fn assert_written_once(&self, buffer: Buffer, what: &str) {
        let used = &self.uses[&buffer.address];
        assert_eq!(used.written.len(), buffer.bytes);
        if let Some(at) = used.written.iter().position(|&times| times != 1) {
            panic!("{what}: byte {at} of {} is written {} times", buffer.bytes, used.written[at]);
        }
    }

    /// The fewest and the most reads of a byte, and all together.
    pub fn reads(&self, buffer: Buffer) -> (u32, u32, u64) {
        let read = &self.uses[&buffer.address].read;
        let most = read.iter().copied().max().unwrap_or(0);
        let least = read.iter().copied().min().unwrap_or(0);
        (least, most, read.iter().map(|&times| u64::from(times)).sum())
    }

    fn used(&mut self, address: u64, length: usize) -> Result<(&mut Use, std::ops::Range<usize>), String> {
        let found = self.uses.range_mut(..=address).next_back();
        let (start, used) = found.ok_or_else(|| format!("{address:#x} is below every buffer"))?;
        let first = usize::try_from(address - start).map_err(|error| error.to_string())?;
        if first.checked_add(length).is_none_or(|end| end > used.read.len()) {
            return Err(format!(
                "{length} bytes at {address:#x} lie {first} bytes into a buffer of {} bytes",
                used.read.len()
            ));
        }
        Ok((used, first..first + length))
    }
}

impl Memory for Device {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), String> {
        let (used, range) = self.used(address, into.len())?;
        if used.output && used.written[range.clone()].contains(&0) {
            return Err(format!("an output is read at {address:#x} before it is written"));
        }
        used.read[range].iter_mut().for_each(|times| *times += 1);
        self.arena.read(address, into)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String> {
        let (used, range) = self.used(address, from.len())?;
        if !used.output {
            return Err(format!("an input is written at {address:#x}"));
        }
        used.written[range].iter_mut().for_each(|times| *times += 1);
        debug_assert!(used.allocation < address);
        self.arena.write(address, from)
    }
}

/// Numbers that are the same in every run (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn byte(&mut self) -> u8 {
        (self.bits() >> 56) as u8
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// Between -1 and 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / 2f64.powi(52) - 1.0
    }

    pub fn words(&mut self, count: usize) -> Vec<u8> {
        (0..count).flat_map(|_| (self.bits() as u32).to_le_bytes()).collect()
    }
}

/// Little-endian bytes of singles.
pub fn singles(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Entries, cases and the worst error, of all tests of this process.
static ALL: Mutex<(usize, usize, f64)> = Mutex::new((0, 0, 0.0));

/// Cases of one family of kernels and their worst error.
#[derive(Default)]
pub struct Tally {
    entries: usize,
    cases: usize,
    worst: f64,
}

impl Tally {
    pub fn entry(&mut self) {
        self.entries += 1;
    }

    pub fn case(&mut self) {
        self.cases += 1;
    }

    /// Fails unless `got` is as near to `wanted` as `tolerance` times the sum of what was added up, `magnitude`.
    pub fn compare(
        &mut self,
        got: f64,
        wanted: f64,
        magnitude: f64,
        tolerance: f64,
        what: &dyn Fn() -> String,
    ) {
        let error = if got == wanted { 0.0 } else { (got - wanted).abs() / magnitude };
        // Not `>`, which a NaN would pass.
        assert!(error <= tolerance, "{}: {got} is not {wanted}, error {error:.2e}", what());
        self.worst = self.worst.max(error);
    }

    /// Prints what was run, and the same of all families so far.
    pub fn report(self, family: &str) {
        let mut all = ALL.lock().unwrap();
        *all = (all.0 + self.entries, all.1 + self.cases, all.2.max(self.worst));
        let mut line = format!(
            "{family}: {} kernels, {} cases, worst relative error {:.2e}",
            self.entries, self.cases, self.worst
        );
        write!(line, "; so far {} kernels, {} cases, {:.2e}", all.0, all.1, all.2).unwrap();
        println!("{line}");
    }
}
