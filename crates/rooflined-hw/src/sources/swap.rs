//! Swap, compressed memory, and the largest pieces of free memory.
//!
//! ```text
//! /proc/swaps  /sys/block/zramN/mm_stat (bytes)  /proc/buddyinfo (blocks by powers of two of pages)
//! ```

use crate::ReadError;
use crate::answers::{Answers, File, SOMETIMES};
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::detail;
use rooflined_core::board::details::Zram;
use rooflined_core::board::{Reading, parse::details as text};

const SWAPS: &str = "/proc/swaps";
const BUDDYINFO: &str = "/proc/buddyinfo";
/// One for each CPU as Jetsons set them up; they may come after this program.
const MOST_ZRAM: u32 = 16;

fn mm_stat(number: u32) -> String {
    format!("/sys/block/zram{number}/mm_stat")
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    for (field, path) in [("swap", SWAPS), ("free_blocks", BUDDYINFO)] {
        if context.root.path(path).is_file() {
            plan.add_origin(field, path);
        }
    }
    if context.root.path(&mm_stat(0)).exists() {
        plan.add_origin("zram", "/sys/block/zram*/mm_stat");
    }
    let files = [SWAPS.to_owned(), BUDDYINFO.to_owned()].into_iter().chain((0..MOST_ZRAM).map(mm_stat));
    plan.read(files.map(|path| File::of_driver(path).limited(16 << 10).every(SOMETIMES)));
    found(|answers, state| {
        let swap = answers.value(SWAPS, "Filename Type Size Used Priority", text::swaps);
        let page = rustix::param::page_size() as u64;
        let blocks = answers.value(BUDDYINFO, "free blocks of each zone", |text| text::buddyinfo(text, page));
        detail!(state.swap = swap, Some(answers.read_at(SWAPS)));
        detail!(state.zram = zram(answers), Some(answers.read_at(SWAPS)));
        detail!(state.free_blocks = blocks, Some(answers.read_at(BUDDYINFO)));
    })
}

/// The devices that tell; where none does, why the first does not.
fn zram(answers: &Answers<'_>) -> Reading<Vec<Zram>> {
    let mut known = Vec::new();
    let mut unknown = None;
    for number in 0..MOST_ZRAM {
        let name = format!("zram{number}");
        match answers
            .value(&mm_stat(number), "bytes stored, compressed and taken", |text| text::zram(&name, text))
        {
            Reading::Known(zram) => known.push(zram),
            Reading::Absent { .. }
                if matches!(answers.text(&mm_stat(number)), Err(ReadError::Missing { .. })) => {}
            other => unknown = unknown.or(Some(other)),
        }
    }
    match unknown {
        Some(unknown) if known.is_empty() => unknown.map(|zram| vec![zram]),
        None if known.is_empty() => {
            Reading::absent("no /sys/block/zram*/mm_stat: no memory is compressed here")
        }
        _ => Reading::Known(known),
    }
}
