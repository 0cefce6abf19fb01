//! The files of all sources, read for one sample and handed out by path.
//!
//! Files behind drivers are read together, with one time limit for all. Those that the kernel answers by itself are
//! read when a source asks for them, once for all that ask.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::time::Instant;

use super::SysRoot;
use super::file::{OpenFile, ReadError};
use super::timed_reader::{Answer, TimedReader};
use roofline::board::Reading;
use roofline::units::Seconds;

/// A file that a source reads at every sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    path: String,
    may_hang: bool,
    limit: usize,
}

impl File {
    /// Answered by the kernel itself, without asking a driver: /proc and the topology of processors.
    pub fn of_kernel(path: impl Into<String>) -> Self {
        Self { path: path.into(), may_hang: false, limit: 64 << 10 }
    }

    /// Behind a driver, which may wait for a bus or a firmware: thermal zones, hwmon, powercap, devfreq.
    pub fn of_driver(path: impl Into<String>) -> Self {
        Self { path: path.into(), may_hang: true, limit: 4096 }
    }

    /// The same with another bound on the bytes read.
    pub fn limited(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    #[cfg(test)]
    pub fn path(&self) -> &str {
        &self.path
    }
}

#[derive(Debug, Clone, Copy)]
enum FileIndex {
    Timed(usize),
    Direct(usize),
}

/// Keeps the descriptors of every file that some source reads.
pub(super) struct Files {
    places: HashMap<String, FileIndex>,
    timed: TimedReader,
    direct: Vec<RefCell<OpenFile>>,
}

impl Files {
    /// Reads nothing yet. A file that several sources name is kept once.
    pub fn new(root: &SysRoot, named: impl IntoIterator<Item = File>) -> Self {
        let mut places = HashMap::new();
        let (mut timed, mut direct) = (Vec::new(), Vec::new());
        for File { path, may_hang, limit } in named {
            if places.contains_key(&path) {
                continue;
            }
            let place = if may_hang {
                timed.push(OpenFile::of_driver(root, &path).limited(limit));
                FileIndex::Timed(timed.len() - 1)
            } else {
                direct.push(RefCell::new(OpenFile::of_kernel(root, &path).limited(limit)));
                FileIndex::Direct(direct.len() - 1)
            };
            places.insert(path, place);
        }
        Self { places, timed: TimedReader::new(timed), direct }
    }

    /// Files that have stopped answering.
    pub fn stuck(&self) -> usize {
        self.timed.stuck()
    }

    /// Reads what lies behind drivers. `now` is the time of the sample.
    pub fn read(&mut self, now: Seconds) -> Answers<'_> {
        let start = Instant::now();
        let timed = self.timed.read_all();
        let direct = self.direct.iter().map(|file| Lazy { file, answer: OnceCell::new() }).collect();
        Answers { places: &self.places, timed, direct, start, now }
    }
}

/// A file that is read when it is asked for.
struct Lazy<'a> {
    file: &'a RefCell<OpenFile>,
    answer: OnceCell<Result<String, ReadError>>,
}

impl Lazy<'_> {
    fn text(&self) -> Result<&str, &ReadError> {
        self.answer.get_or_init(|| self.file.borrow_mut().read()).as_ref().map(String::as_str)
    }
}

pub(super) struct Answers<'a> {
    places: &'a HashMap<String, FileIndex>,
    timed: Vec<Answer>,
    direct: Vec<Lazy<'a>>,
    start: Instant,
    now: Seconds,
}

static NOT_NAMED: ReadError = ReadError::NotNamed;

impl Answers<'_> {
    /// CLOCK_BOOTTIME of the sample.
    pub fn now(&self) -> Seconds {
        self.now
    }

    pub fn text(&self, path: &str) -> Result<&str, &ReadError> {
        match self.places.get(path) {
            Some(FileIndex::Timed(index)) => self.timed[*index].as_ref().map(|(text, _)| text.as_str()),
            Some(FileIndex::Direct(index)) => self.direct[*index].text(),
            None => Err(&NOT_NAMED),
        }
    }

    /// The value in one file: what `parse` makes of its text, which should be `expected`.
    pub fn value<T>(&self, path: &str, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Reading<T> {
        super::parsed(path, self.text(path), expected, parse)
    }

    /// When a file was read; the time of the sample where it has no time of its own.
    pub fn read_at(&self, path: &str) -> Seconds {
        let answer = match self.places.get(path) {
            Some(FileIndex::Timed(index)) => self.timed[*index].as_ref().ok(),
            _ => None,
        };
        answer.map_or(self.now, |(_, at)| self.now + Seconds((*at - self.start).as_secs_f64()))
    }
}
