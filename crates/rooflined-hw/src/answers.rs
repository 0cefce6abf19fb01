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
use rooflined_core::board::Reading;
use rooflined_core::units::Seconds;

/// A file that a source reads at every sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct File {
    path: String,
    may_hang: bool,
    limit: usize,
    /// Shortest time between two reads.
    every: Seconds,
}

/// For what changes all the time but is not worth reading at each of several samples in one second.
pub(super) const EACH_SECOND: Seconds = Seconds(0.9);
/// For what costs its device work, and for what changes when somebody changes it.
pub(super) const SOMETIMES: Seconds = Seconds(10.0);
/// For what stays for hours.
pub(super) const RARELY: Seconds = Seconds(60.0);
/// A file that failed is tried again after this long at the latest.
const RETRY: Seconds = Seconds(1.0);

impl File {
    /// Answered by the kernel itself, without asking a driver: /proc and the topology of processors.
    pub fn of_kernel(path: impl Into<String>) -> Self {
        Self { path: path.into(), may_hang: false, limit: 64 << 10, every: Seconds::ZERO }
    }

    /// Behind a driver, which may wait for a bus or a firmware: thermal zones, hwmon, powercap, devfreq.
    pub fn of_driver(path: impl Into<String>) -> Self {
        Self { path: path.into(), may_hang: true, limit: 4096, every: Seconds::ZERO }
    }

    /// The same with another bound on the bytes read.
    pub fn limited(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// The same, read again only when this much time has passed; what was read last stands until then. Of several
    /// sources that name a file the least patient counts. Only for files behind drivers: the others are read when
    /// they are asked for.
    pub fn every(self, every: Seconds) -> Self {
        Self { every, ..self }
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

/// When a file behind a driver is read.
struct Pace {
    every: Seconds,
    last: Option<Seconds>,
}

/// Keeps the descriptors of every file that some source reads.
pub(super) struct Files {
    places: HashMap<String, FileIndex>,
    timed: TimedReader,
    paces: Vec<Pace>,
    /// What was read last of each file behind a driver.
    kept: Vec<Answer>,
    direct: Vec<RefCell<OpenFile>>,
}

impl Files {
    /// Reads nothing yet. A file that several sources name is kept once.
    pub fn new(root: &SysRoot, named: impl IntoIterator<Item = File>) -> Self {
        let mut places = HashMap::new();
        let (mut timed, mut direct) = (Vec::new(), Vec::new());
        let mut paces: Vec<Pace> = Vec::new();
        for File { path, may_hang, limit, every } in named {
            if let Some(place) = places.get(&path) {
                if let FileIndex::Timed(index) = *place {
                    paces[index].every = paces[index].every.min(every);
                }
                continue;
            }
            let place = if may_hang {
                timed.push(OpenFile::of_driver(root, &path).limited(limit));
                paces.push(Pace { every, last: None });
                FileIndex::Timed(timed.len() - 1)
            } else {
                direct.push(RefCell::new(OpenFile::of_kernel(root, &path).limited(limit)));
                FileIndex::Direct(direct.len() - 1)
            };
            places.insert(path, place);
        }
        let kept = timed.iter().map(|_| Err(ReadError::NotNamed)).collect();
        Self { places, timed: TimedReader::new(timed), paces, kept, direct }
    }

    /// Files that have stopped answering.
    pub fn stuck(&self) -> usize {
        self.timed.stuck()
    }

    /// Reads what lies behind drivers and is due. `now` is the time of the sample.
    pub fn read(&mut self, now: Seconds) -> Answers<'_> {
        let start = Instant::now();
        let due: Vec<bool> =
            self.paces.iter().zip(&self.kept).map(|(pace, kept)| pace.is_due(now, kept)).collect();
        for (index, answer) in self.timed.read_due(&due).into_iter().enumerate() {
            if let Some(answer) = answer {
                self.kept[index] = answer;
                self.paces[index].last = Some(now);
            }
        }
        let direct = self.direct.iter().map(|file| Lazy { file, answer: OnceCell::new() }).collect();
        Answers { places: &self.places, timed: &self.kept, direct, start, now }
    }
}

impl Pace {
    fn is_due(&self, now: Seconds, kept: &Answer) -> bool {
        let failed = kept.as_ref().is_err_and(|error| !error.is_lasting());
        let wait = if failed { self.every.min(RETRY) } else { self.every };
        // A clock that went back is a new start.
        self.last.is_none_or(|last| now < last || now - last >= wait)
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
    timed: &'a [Answer],
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
        answer.map_or(self.now, |(_, at)| {
            let (after, before) =
                (at.saturating_duration_since(self.start), self.start.saturating_duration_since(*at));
            self.now + Seconds(after.as_secs_f64()) - Seconds(before.as_secs_f64())
        })
    }
}
