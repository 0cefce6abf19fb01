//! Rails as the sources of power have them in common.

use crate::answers::File;
use crate::rail::{Meter, Metered};
use crate::source::{Plan, Reader, found};

/// The source of these rails. Of `dirs` those are named that some of the meters lie in.
pub(super) fn discovered(mut meters: Vec<Meter>, dirs: &[&str], plan: &mut Plan) -> Option<Reader> {
    if meters.is_empty() {
        return None;
    }
    for dir in dirs.iter().filter(|dir| meters.iter().any(|meter| meter.path.starts_with(**dir))) {
        plan.add_origin("rails", *dir);
    }
    for meter in &meters {
        let further = meter.current.iter().chain(meter.check.iter().flatten());
        plan.read(std::iter::once(&meter.path).chain(further).map(File::of_driver));
    }
    found(move |answers, state| {
        state.rails(meters.iter_mut().map(|meter| Metered {
            rail: meter.read(answers),
            device: meter.device.clone(),
            place: meter.place.clone(),
        }));
    })
}
