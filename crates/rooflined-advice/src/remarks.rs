//! What every answer says of the snapshot that it rests on.

use rooflined_core::ceilings::Provenance;
use rooflined_predict::snapshot::Snapshot;

/// The hardware of a snapshot that is of no machine.
pub fn hypothetical(snapshot: &Snapshot) -> Option<String> {
    snapshot.is_hypothetical().then(|| snapshot.board.key.clone())
}

/// What the client should know beside what the prediction says itself.
pub fn warnings(snapshot: &Snapshot, provenance: Provenance, mut warnings: Vec<String>) -> Vec<String> {
    if snapshot.is_hypothetical() {
        warnings.push(format!(
            "the ceilings are those of {}'s data sheet: nothing was measured",
            snapshot.board.key
        ));
    } else if matches!(provenance, Provenance::Prior | Provenance::Datasheet) {
        warnings.push("the ceilings are not measured yet: rooflinectl calibrate".to_owned());
    }
    if snapshot.state.throttle.known().is_some_and(|throttle| throttle.active) {
        warnings.push("the machine is throttling: it may be slower than this".to_owned());
    }
    warnings
}
