//! Decisions that were given from the present snapshot, so that asking again costs a look-up.

use std::sync::{Mutex, PoisonError};

use crate::answer::Request;

/// Answers kept; clients that ask again ask about a few models.
const MOST: usize = 64;
/// No longer body is kept.
const LONGEST_BODY: usize = 8 * 1024;

/// Answers to questions, given from one snapshot.
#[derive(Debug, Default)]
pub struct Remembered {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    serial: u64,
    /// The newest last.
    answers: Vec<Answered>,
}

#[derive(Debug)]
struct Answered {
    body: Box<[u8]>,
    answer: Box<[u8]>,
}

impl Remembered {
    /// What the same body was answered from the snapshot with this serial.
    #[must_use]
    pub fn find(&self, serial: u64, body: &[u8]) -> Option<Vec<u8>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.serial != serial {
            return None;
        }
        let known = kept.answers.iter().rev().find(|known| *known.body == *body)?;
        Some(known.answer.to_vec())
    }

    /// Keeps the answer to `body`; those from older snapshots are forgotten.
    pub fn keep(&self, serial: u64, body: &[u8], answer: &[u8]) {
        if body.len() > LONGEST_BODY {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // A slow answer from an older snapshot says nothing of this one.
        if serial < kept.serial {
            return;
        }
        if serial > kept.serial {
            *kept = Kept { serial, answers: Vec::new() };
        }
        if kept.answers.len() >= MOST {
            kept.answers.remove(0);
        }
        kept.answers.push(Answered { body: body.into(), answer: answer.into() });
    }
}

/// Whether the same body has the same answer for as long as the snapshot is the same: a model's file may change meanwhile.
#[must_use]
pub fn lasting(request: &Request) -> bool {
    let Request::Recommend(request) = request else { return false };
    request.workload.model.as_ref().is_none_or(serde_json::Value::is_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_again_until_the_snapshot_changes() {
        let remembered = Remembered::default();
        remembered.keep(7, b"a", b"answer");
        assert_eq!(remembered.find(7, b"a").as_deref(), Some(&b"answer"[..]));
        assert_eq!(remembered.find(7, b"b"), None);
        assert_eq!(remembered.find(8, b"a"), None);
        remembered.keep(8, b"b", b"newer");
        assert_eq!(remembered.find(7, b"a"), None, "an older snapshot's answers are gone");
        remembered.keep(7, b"c", b"late");
        assert_eq!(remembered.find(8, b"b").as_deref(), Some(&b"newer"[..]));
    }

    #[test]
    fn memory_is_bounded() {
        let remembered = Remembered::default();
        for index in 0..1_000_u32 {
            remembered.keep(1, &index.to_le_bytes(), b"x");
        }
        assert_eq!(remembered.kept.lock().unwrap().answers.len(), MOST);
        assert!(remembered.find(1, &999_u32.to_le_bytes()).is_some());
        remembered.keep(1, &vec![0; LONGEST_BODY + 1], b"x");
        assert_eq!(remembered.find(1, &vec![0; LONGEST_BODY + 1]), None);
    }

    #[test]
    fn a_model_in_a_file_is_looked_at_anew() {
        let request = |model: serde_json::Value| {
            let body = serde_json::json!({ "workload": { "model": model } });
            Request::Recommend(Box::new(serde_json::from_value(body).unwrap()))
        };
        assert!(lasting(&request("llama-3.1-8b".into())));
        assert!(!lasting(&request(serde_json::json!({ "path": "/m.gguf" }))));
        assert!(!lasting(&Request::Board));
    }
}
