//! The projector of a model that sees or hears: a GGUF file of its own.

use super::header::Header;
use super::short;
use crate::class::Class;
use crate::model::{Grouping, Model};

/// What a reader should know of a model that sees or hears with a file which was not given.
pub(super) const UNPROJECTED: &str = "what it sees or hears goes through a projector in a file of its own (mmproj), which does not \
    count here: put that file next to this one";

/// Whether what a projector makes is as wide as the model.
#[must_use]
pub fn fits(model: &Model, projector: &Header) -> bool {
    projector.tensors.iter().any(|tensor| tensor.shape.contains(&model.architecture.hidden))
}

/// Counts the projector that lies next to a model, under the name of its file, as the model's tower.
pub fn add_projector(model: &mut Model, projector: &Header, name: &str) {
    let mut groups = Grouping::default();
    for tensor in &projector.tensors {
        let (matrices, rows, columns) = tensor.matrix();
        // A sum that does not fit would be left out.
        let _ = groups.add(
            Class::Tower,
            tensor.block,
            (rows, columns),
            matrices,
            tensor.elements().unwrap_or(0),
            tensor.bytes,
        );
    }
    let groups = groups.finish();
    let millions = groups.iter().map(|group| group.parameters).sum::<u64>() / 1_000_000;
    model.weights.extend(groups);
    model.warnings.retain(|warning| warning != UNPROJECTED);
    model.warnings.push(format!(
        "{}, the projector of {millions} million weights next to it, counts as memory; its time counts with --image-tokens",
        short(name)
    ));
}
