//! llama-server: two looks at `/slots`.
//!
//! A slot that has run anything tells the task it last ran (`id_task`), whether it is busy, the tokens it holds, prompt and
//! generated ones (`n_prompt_tokens`), and how many it generated (`next_token[0].n_decoded`). The counters of `/metrics` are
//! not looked at: they move only when a request ends, and reading them empties the two gauges that others may read.

use serde_json::Value;

use super::window::{Instant, Skip, Window};

/// Most tokens that are drafted for one step.
const MOST_DRAFTED: u64 = 64;

/// One look.
#[derive(Debug, Clone, PartialEq)]
pub struct Poll {
    pub at: Instant,
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, PartialEq)]
struct Slot {
    id: u64,
    /// The task it runs, or ran last.
    task: Option<i64>,
    busy: bool,
    speculative: bool,
    /// Prompt and generated tokens in the cache.
    tokens: u64,
    /// Generated tokens; 0 while the prompt is read.
    decoded: u64,
}

/// Why `/slots` cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// No array of slots.
    NoSlots,
    /// Busy slots do not tell how many tokens they hold: a build of before August 2025.
    Old,
}

impl Poll {
    /// What `/slots` answered.
    ///
    /// # Errors
    /// It is not what a present build answers.
    pub fn read(at: Instant, answer: &Value) -> Result<Self, Unusable> {
        let slots = answer.as_array().filter(|slots| !slots.is_empty()).ok_or(Unusable::NoSlots)?;
        let slots = slots.iter().map(slot).collect::<Result<_, _>>()?;
        Ok(Self { at, slots })
    }

    /// Whether anything is generated or read.
    pub fn is_busy(&self) -> bool {
        self.slots.iter().any(|slot| slot.busy)
    }
}

fn slot(answer: &Value) -> Result<Slot, Unusable> {
    let busy = answer.get("is_processing").and_then(Value::as_bool).ok_or(Unusable::NoSlots)?;
    let number = |value: Option<&Value>| value.and_then(Value::as_u64);
    let tokens = number(answer.get("n_prompt_tokens"));
    let decoded = number(answer.pointer("/next_token/0/n_decoded"));
    if busy && (tokens.is_none() || decoded.is_none()) {
        return Err(Unusable::Old);
    }
    Ok(Slot {
        id: number(answer.get("id")).ok_or(Unusable::NoSlots)?,
        task: answer.get("id_task").and_then(Value::as_i64),
        busy,
        speculative: answer.get("speculative").and_then(Value::as_bool).unwrap_or(false),
        tokens: tokens.unwrap_or(0),
        decoded: decoded.unwrap_or(0),
    })
}

/// The window between two looks.
///
/// # Errors
/// Why it is missing. Idle slots keep the task that they ran last, so a request that came and went between the looks shows.
pub fn window(before: &Poll, after: &Poll) -> Result<Window, Skip> {
    let drafts = |look: &Poll| look.slots.iter().any(|slot| slot.speculative);
    if before.slots.len() == after.slots.len() && (drafts(before) || drafts(after)) {
        return Err(Skip::Speculation);
    }
    window_with_drafts(before, after)
}

/// The same, where a drafted token that was accepted counts as a step.
///
/// # Errors
/// Why it is missing.
pub fn window_with_drafts(before: &Poll, after: &Poll) -> Result<Window, Skip> {
    if !before.is_busy() && !after.is_busy() {
        return Err(Skip::Idle);
    }
    if before.slots.len() != after.slots.len() {
        return Err(Skip::Restarted);
    }
    let pairs = || before.slots.iter().zip(&after.slots);
    if pairs().any(|(was, is)| was.id != is.id || was.task != is.task || was.busy != is.busy) {
        return Err(Skip::RequestsChanged);
    }
    let busy = || pairs().filter(|(was, _)| was.busy);
    if busy().any(|(was, is)| is.decoded < was.decoded) {
        return Err(Skip::Restarted);
    }
    // The first token comes out of the prompt's last pass.
    if busy().any(|(was, _)| was.decoded == 0) {
        return Err(Skip::Prompt);
    }
    let decoded: Vec<u64> = busy().map(|(was, is)| is.decoded - was.decoded).collect();
    let grown = busy().map(|(was, is)| is.tokens.checked_sub(was.tokens));
    // Both looks fall between the same two steps, for all slots, so the counts of one slot agree but for a step.
    let step = if pairs().any(|(was, is)| was.speculative || is.speculative) { MOST_DRAFTED } else { 1 };
    if grown.zip(&decoded).any(|(grown, decoded)| grown.is_none_or(|grown| grown.abs_diff(*decoded) > step)) {
        return Err(Skip::ContextShift);
    }
    let (least, most) =
        (decoded.iter().min().copied().unwrap_or(0), decoded.iter().max().copied().unwrap_or(0));
    if most - least > 1 {
        return Err(Skip::BatchVaried);
    }
    let seconds = before.at.until(after.at)?;
    let batch = decoded.len() as u64;
    let tokens: u64 = busy().map(|(was, is)| was.tokens.midpoint(is.tokens)).sum();
    #[expect(clippy::cast_precision_loss, reason = "steps and slots are far below 2^53")]
    let step_s = seconds * batch as f64 / decoded.iter().sum::<u64>().max(1) as f64;
    Window::new(batch, Some(tokens / batch), least, seconds, step_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(at_s: f64) -> Instant {
        Instant { at_s, reply_s: 0.001 }
    }

    fn busy(id: u64, task: i64, tokens: u64, decoded: u64) -> Value {
        json!({"id": id, "n_ctx": 2048, "speculative": false, "is_processing": true, "id_task": task,
               "n_prompt_tokens": tokens, "next_token": [{"n_decoded": decoded, "has_next_token": true}]})
    }

    fn idle(id: u64, task: Option<i64>) -> Value {
        let mut slot = json!({"id": id, "n_ctx": 2048, "speculative": false, "is_processing": false});
        if let Some(task) = task {
            slot["id_task"] = json!(task);
        }
        slot
    }

    fn look(seconds: f64, slots: &Value) -> Poll {
        Poll::read(at(seconds), slots).unwrap()
    }

    #[test]
    fn two_busy_slots_are_a_batch_of_two_at_the_middle_of_their_contexts() {
        let before = look(10.0, &json!([busy(0, 7, 100, 20), busy(1, 8, 300, 40), idle(2, Some(3))]));
        let after = look(14.0, &json!([busy(0, 7, 300, 220), busy(1, 8, 500, 240), idle(2, Some(3))]));
        let window = window(&before, &after).unwrap();
        assert_eq!((window.batch, window.context_tokens, window.steps), (2, Some(300), 200));
        assert!((window.step_s - 4.0 / 200.0).abs() < 1e-12);
    }

    #[test]
    fn a_step_that_one_slot_is_ahead_is_shared_out() {
        let before = look(0.0, &json!([busy(0, 7, 10, 1), busy(1, 8, 10, 1)]));
        let after = look(2.0, &json!([busy(0, 7, 110, 101), busy(1, 8, 111, 102)]));
        assert!((window(&before, &after).unwrap().step_s - 2.0 * 2.0 / 201.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_steady_decoding_is_named() {
        let before = || look(0.0, &json!([busy(0, 7, 100, 20), idle(1, Some(3))]));
        let then =
            |slots: Value| window(&before(), &look(4.0, &slots)).and_then(Window::long_enough).unwrap_err();
        assert_eq!(then(json!([busy(0, 7, 110, 30), idle(1, Some(3))])), Skip::TooShort);
        assert_eq!(then(json!([busy(0, 9, 300, 220), idle(1, Some(3))])), Skip::RequestsChanged);
        // It came and went: the idle slot keeps its number.
        assert_eq!(then(json!([busy(0, 7, 300, 220), idle(1, Some(9))])), Skip::RequestsChanged);
        assert_eq!(then(json!([busy(0, 7, 300, 220), busy(1, 9, 50, 0)])), Skip::RequestsChanged);
        assert_eq!(then(json!([idle(0, Some(7)), idle(1, Some(3))])), Skip::RequestsChanged);
        assert_eq!(then(json!([busy(0, 7, 60, 220), idle(1, Some(3))])), Skip::ContextShift);
        assert_eq!(then(json!([busy(0, 7, 300, 4), idle(1, Some(3))])), Skip::Restarted);
        assert_eq!(then(json!([busy(0, 7, 300, 220)])), Skip::Restarted);
        let idle = || json!([idle(0, None), idle(1, None)]);
        assert_eq!(window(&look(0.0, &idle()), &look(4.0, &idle())), Err(Skip::Idle));
    }

    #[test]
    fn a_prompt_under_way_drafts_and_slots_out_of_step_are_refused() {
        let window =
            |before: Value, after: Value| super::window(&look(0.0, &before), &look(4.0, &after)).unwrap_err();
        assert_eq!(window(json!([busy(0, 7, 100, 0)]), json!([busy(0, 7, 300, 200)])), Skip::Prompt);
        let mut draft = busy(0, 7, 100, 20);
        draft["speculative"] = json!(true);
        assert_eq!(window(json!([draft.clone()]), json!([draft.clone()])), Skip::Speculation);
        let mut later = busy(0, 7, 330, 220);
        later["speculative"] = json!(true);
        let drafted = window_with_drafts(&look(0.0, &json!([draft])), &look(4.0, &json!([later]))).unwrap();
        assert_eq!(drafted.steps, 200);
        // The other slot read its prompt in some of the steps.
        let before = json!([busy(0, 7, 100, 20), busy(1, 8, 100, 20)]);
        let after = json!([busy(0, 7, 300, 220), busy(1, 8, 250, 170)]);
        assert_eq!(window(before, after), Skip::BatchVaried);
    }

    #[test]
    fn answers_that_tell_too_little_are_refused() {
        let read = |answer: Value| Poll::read(at(0.0), &answer).unwrap_err();
        assert_eq!(read(json!({"error": {"code": 501}})), Unusable::NoSlots);
        assert_eq!(read(json!([])), Unusable::NoSlots);
        assert_eq!(read(json!([{"id": 0}])), Unusable::NoSlots);
        let old = json!([{"id": 0, "is_processing": true, "id_task": 1, "next_token": {"n_decoded": 5}}]);
        assert_eq!(read(old), Unusable::Old);
        let negative = json!([{"id": 0, "is_processing": true, "n_prompt_tokens": -5, "next_token": [{"n_decoded": 5}]}]);
        assert_eq!(read(negative), Unusable::Old);
    }
}
