//! Small files that name things, read once at discovery. They lie behind drivers too, so with a time limit.

use std::collections::{HashMap, HashSet};

use super::SysRoot;
use super::file::OpenFile;
use super::timed_reader::TimedReader;
use rooflined_core::board::parse;

/// The texts of those that answered, by path.
pub(super) struct Texts(HashMap<String, String>);

pub(super) fn ask(root: &SysRoot, files: impl IntoIterator<Item = String>) -> Texts {
    let mut asked = HashSet::new();
    let files: Vec<String> = files.into_iter().filter(|file| asked.insert(file.clone())).collect();
    let answers =
        TimedReader::new(files.iter().map(|file| OpenFile::of_driver(root, file)).collect()).read_all();
    let texts = files.into_iter().zip(answers);
    Texts(texts.filter_map(|(file, answer)| Some((file, answer.ok()?.0))).collect())
}

impl Texts {
    pub fn text(&self, file: &str) -> Option<&str> {
        self.0.get(file).map(String::as_str)
    }

    pub fn label(&self, file: &str) -> Option<String> {
        parse::label(self.text(file)?)
    }

    pub fn unsigned(&self, file: &str) -> Option<u64> {
        parse::unsigned(self.text(file)?)
    }
}
