//! Everything about power modes and holds that changes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::helper::Helper;
use super::hold::{Holds, StoredHolds};
use super::lifecycle::Stage;
use super::mode_tracker::ModeTracker;
use crate::{Client, ControlRequest, Ticket};
use rooflined_core::board::BoardState;
use rooflined_core::units::Seconds;

/// A request that waits for what is under way.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) ticket: Ticket,
    pub(super) client: Client,
    pub(super) request: ControlRequest,
}

/// Everything about power modes that changes.
#[derive(Debug)]
pub(crate) struct PowerState {
    /// What is under way, and what is not settled.
    pub(super) stage: Stage,
    pub(super) orders: u64,
    /// Changes that had to be confirmed so far.
    pub(super) changes: u64,
    pub(super) mode: ModeTracker,
    pub(super) holds: Holds,
    /// Requests that wait for what is under way: holds for any switch, all of them for housekeeping.
    pub(super) queue: VecDeque<Queued>,
    pub(super) helper: Helper,
    pub(super) announced: Announced,
}

/// What was last announced to the rest of the daemon.
#[derive(Debug, Default)]
pub(super) struct Announced {
    pub(super) wake_at: Option<Seconds>,
    pub(super) lively: bool,
    /// What another daemon would go on with.
    pub(super) stored: Arc<StoredHolds>,
}

impl PowerState {
    pub(crate) fn new(state: &BoardState) -> Self {
        Self {
            stage: Stage::default(),
            orders: 0,
            changes: 0,
            mode: ModeTracker::new(state),
            holds: Holds::new(),
            queue: VecDeque::new(),
            helper: Helper::new(),
            announced: Announced::default(),
        }
    }
}
