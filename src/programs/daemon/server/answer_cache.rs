//! Cache of the decisions made from the present snapshot, so that asking again costs a look-up.

use std::sync::{Mutex, PoisonError};

use answer::Request;

/// Answers kept; clients that ask again ask about a few models.
const MOST: usize = 64;
/// No longer body is kept.
const LONGEST_BODY: usize = 8 * 1024;

/// Answers to questions, given from one snapshot.
#[derive(Debug, Default)]
pub struct AnswerCache {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    serial: u64,
    /// The newest last.
    answers: Vec<Answered>,
}

#[derive(Debug)]
struct Answered {
    /// Whose answer it is; `None`: everybody's who reported nothing.
    viewer: Option<u32>,
    body: Box<[u8]>,
    answer: Box<[u8]>,
}

impl AnswerCache {
    /// What the same body was answered from the snapshot with this serial.
    #[must_use]
    pub fn find(&self, serial: u64, viewer: Option<u32>, body: &[u8]) -> Option<Vec<u8>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.serial != serial {
            return None;
        }
        let known =
            entries.answers.iter().rev().find(|known| known.viewer == viewer && *known.body == *body)?;
        Some(known.answer.to_vec())
    }

    /// Keeps the answer to `body`; those from older snapshots are forgotten.
    pub fn insert(&self, serial: u64, viewer: Option<u32>, body: &[u8], answer: &[u8]) {
        if body.len() > LONGEST_BODY {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // A slow answer from an older snapshot says nothing of this one.
        if serial < entries.serial {
            return;
        }
        if serial > entries.serial {
            *entries = Entries { serial, answers: Vec::new() };
        }
        if entries.answers.len() >= MOST {
            entries.answers.remove(0);
        }
        entries.answers.push(Answered { viewer, body: body.into(), answer: answer.into() });
    }
}

/// Whether the same body has the same answer for as long as the snapshot is the same: a model's file may change meanwhile.
#[must_use]
pub fn is_cacheable(request: &Request) -> bool {
    let Request::Recommend(request) = request else { return false };
    let reads_nothing = |model: &serde_json::Value| model.is_string() || model.get("contents").is_some();
    request.workload.model.as_ref().is_none_or(reads_nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_again_until_the_snapshot_changes() {
        let cache = AnswerCache::default();
        cache.insert(7, None, b"a", b"answer");
        assert_eq!(cache.find(7, None, b"a").as_deref(), Some(&b"answer"[..]));
        assert_eq!(cache.find(7, None, b"b"), None);
        assert_eq!(cache.find(7, Some(1000), b"a"), None, "whose reports differ is answered otherwise");
        assert_eq!(cache.find(8, None, b"a"), None);
        cache.insert(8, None, b"b", b"newer");
        assert_eq!(cache.find(7, None, b"a"), None, "an older snapshot's answers are gone");
        cache.insert(7, None, b"c", b"late");
        assert_eq!(cache.find(8, None, b"b").as_deref(), Some(&b"newer"[..]));
    }

    #[test]
    fn memory_is_bounded() {
        let cache = AnswerCache::default();
        for index in 0..1_000_u32 {
            cache.insert(1, None, &index.to_le_bytes(), b"x");
        }
        assert_eq!(cache.entries.lock().unwrap().answers.len(), MOST);
        assert!(cache.find(1, None, &999_u32.to_le_bytes()).is_some());
        cache.insert(1, None, &vec![0; LONGEST_BODY + 1], b"x");
        assert_eq!(cache.find(1, None, &vec![0; LONGEST_BODY + 1]), None);
    }

    #[test]
    fn a_model_in_a_file_is_not_cached() {
        let request = |model: serde_json::Value| {
            let body = serde_json::json!({ "workload": { "model": model } });
            Request::Recommend(Box::new(serde_json::from_value(body).unwrap()))
        };
        assert!(is_cacheable(&request("llama-3.1-8b".into())));
        assert!(!is_cacheable(&request(serde_json::json!({ "path": "/m.gguf" }))));
        assert!(is_cacheable(&request(serde_json::json!({ "path": "/m.gguf", "contents": {} }))));
        assert!(!is_cacheable(&Request::Board));
    }
}
