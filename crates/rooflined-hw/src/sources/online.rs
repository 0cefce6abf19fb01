//! The logical CPUs online. A damaged or missing list is made up for by /proc/stat.

use crate::answers::{Answers, File};
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::{ONLINE, STAT, parsed};
use rooflined_core::board::{Reading, parse};

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    if context.root.path(ONLINE).is_file() {
        plan.add_origin("cores_online", ONLINE);
    }
    plan.read(files());
    let limits = context.limits.clone();
    found(move |answers, state| {
        let count = |cpus: &[u32]| u32::try_from(cpus.len()).unwrap_or(u32::MAX);
        let online = online(answers);
        // Files that are virtualised say nothing of the machine.
        state.machine_cores = online.known().filter(|cpus| !limits.renumbers(cpus)).map(|cpus| count(cpus));
        let granted = online.map(|cpus| limits.granted(count(&limits.allowed(cpus))));
        state.set(|state| &mut state.cores_online, granted);
    })
}

/// The files that [`online`] needs.
pub(super) fn files() -> [File; 2] {
    [File::of_kernel(ONLINE), stat()]
}

/// Of /proc/stat the beginning counts, 256 CPUs and more; the interrupts after it are long.
pub(super) fn stat() -> File {
    File::of_kernel(STAT).limited(64 << 10)
}

/// The CPUs, in ascending order.
pub(super) fn online(answers: &Answers<'_>) -> Reading<Vec<u32>> {
    listed(answers.text(ONLINE), || answers.text(STAT))
}

/// The online list, or what /proc/stat says where the list is missing or damaged.
pub(crate) fn listed<T: AsRef<str>, E>(
    list: Result<T, E>,
    stat: impl FnOnce() -> Result<T, E>,
) -> Reading<Vec<u32>>
where
    Reading<Vec<u32>>: From<E>,
{
    let cpus =
        parsed(ONLINE, list, "a CPU list", |text| parse::cpu_list(text).filter(|cpus| !cpus.is_empty()));
    if cpus.known().is_some() {
        return cpus;
    }
    match stat().map(|text| parse::stat_cpus(text.as_ref())) {
        Ok(found) if !found.is_empty() => Reading::Known(found),
        _ => cpus,
    }
}
