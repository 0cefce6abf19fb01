//! Cache of what was answered from the present snapshot, so that asking again costs a look-up.

use std::sync::{Mutex, PoisonError};

use super::form::Form;
use super::judge::Content;
use answer::Request;

/// Answers kept; clients that ask again ask about a few models.
const MOST: usize = 64;
/// No longer body is kept.
const LONGEST_BODY: usize = 8 * 1024;

/// Answers to questions of one route, given from one snapshot.
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

/// What an answer depends on beside the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Whose answer it is; `None`: everybody's who reported nothing.
    pub viewer: Option<u32>,
    pub form: Form,
    pub body: &'a [u8],
}

#[derive(Debug)]
struct Answered {
    viewer: Option<u32>,
    form: Form,
    body: Box<[u8]>,
    answer: Content,
}

impl AnswerCache {
    /// What the same was answered from the snapshot with this serial.
    #[must_use]
    pub fn find(&self, serial: u64, asked: &Asked<'_>) -> Option<Content> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.serial != serial {
            return None;
        }
        let known = entries.answers.iter().rev().find(|known| known.asked() == *asked)?;
        Some(known.answer.clone())
    }

    /// Keeps the answer to what was asked; those from older snapshots are forgotten.
    pub fn insert(&self, serial: u64, asked: &Asked<'_>, answer: &Content) {
        let Asked { viewer, form, body } = *asked;
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
        entries.answers.push(Answered { viewer, form, body: body.into(), answer: answer.clone() });
    }
}

impl Answered {
    fn asked(&self) -> Asked<'_> {
        Asked { viewer: self.viewer, form: self.form, body: &self.body }
    }
}

/// Whether the same body has the same answer for as long as the snapshot is the same: a model's file may change meanwhile.
#[must_use]
pub fn is_cacheable(request: &Request) -> bool {
    let model = match request {
        Request::Predict(request) => &request.workload.model,
        Request::Recommend(request) => &request.workload.model,
        _ => return false,
    };
    let reads_nothing = |model: &serde_json::Value| model.is_string() || model.get("contents").is_some();
    model.as_ref().is_none_or(reads_nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zbus::wire::{BE, LE};

    const fn asked(viewer: Option<u32>, body: &[u8]) -> Asked<'_> {
        Asked { viewer, form: Form::Json, body }
    }

    fn json(text: &str) -> Content {
        Content::Json(text.into())
    }

    fn found(cache: &AnswerCache, serial: u64, asked: &Asked<'_>) -> Option<Vec<u8>> {
        match cache.find(serial, asked)? {
            Content::Json(json) => Some(json),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_answers_of_one_snapshot_are_found_by_who_asks_for_what_in_which_form() {
        let cache = AnswerCache::default();
        cache.insert(7, &asked(None, b"a"), &json("answer"));
        assert_eq!(found(&cache, 7, &asked(None, b"a")).as_deref(), Some(&b"answer"[..]));
        assert!(cache.find(7, &asked(None, b"b")).is_none());
        assert!(
            cache.find(7, &asked(Some(1000), b"a")).is_none(),
            "whose reports differ is answered otherwise"
        );
        for endian in [LE, BE] {
            assert!(cache.find(7, &Asked { form: Form::Members(endian), ..asked(None, b"a") }).is_none());
        }
        assert!(cache.find(8, &asked(None, b"a")).is_none());
        cache.insert(8, &asked(None, b"b"), &json("newer"));
        assert!(cache.find(7, &asked(None, b"a")).is_none(), "an older snapshot's answers are gone");
        cache.insert(7, &asked(None, b"c"), &json("late"));
        assert_eq!(found(&cache, 8, &asked(None, b"b")).as_deref(), Some(&b"newer"[..]));
        assert!(cache.find(8, &asked(None, b"c")).is_none());
    }

    #[test]
    fn memory_is_bounded() {
        let cache = AnswerCache::default();
        for index in 0..1_000_u32 {
            cache.insert(1, &asked(None, &index.to_le_bytes()), &json("x"));
        }
        assert_eq!(cache.entries.lock().unwrap().answers.len(), MOST);
        assert!(cache.find(1, &asked(None, &999_u32.to_le_bytes())).is_some());
        let long = vec![0; LONGEST_BODY + 1];
        cache.insert(1, &asked(None, &long), &json("x"));
        assert!(cache.find(1, &asked(None, &long)).is_none());
    }

    #[test]
    fn a_model_in_a_file_is_not_cached() {
        let cacheable = |model: serde_json::Value| {
            let body = serde_json::json!({ "workload": { "model": model } });
            let recommend = Request::Recommend(Box::new(serde_json::from_value(body.clone()).unwrap()));
            let predict = Request::Predict(serde_json::from_value(body).unwrap());
            [recommend, predict].map(|request| is_cacheable(&request))
        };
        assert_eq!(cacheable("llama-3.1-8b".into()), [true; 2]);
        assert_eq!(cacheable(serde_json::json!({ "path": "/m.gguf" })), [false; 2]);
        assert_eq!(cacheable(serde_json::json!({ "path": "/m.gguf", "contents": {} })), [true; 2]);
        assert!(!is_cacheable(&Request::Board));
    }
}
