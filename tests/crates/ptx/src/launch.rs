//! A launch: checks, then block after block.

use crate::mma::KINDS;
use crate::shared::Shared;
use crate::special::Block;
use crate::tensor::Tensor;
use crate::warp::{Fail, Machine, Trouble, Waiting, Warp};
use crate::{Counts, Entry, Fault, FaultLocation, Launch, Memory};

/// The most threads of a block.
const MOST_THREADS: u64 = 1024;
/// The most shared memory of a block on any board so far.
const MOST_SHARED: u64 = 227 << 10;

/// Runs an entry to its end or to the first fault.
pub fn launch(entry: &Entry, launch: &Launch<'_>, memory: &mut dyn Memory) -> Result<Counts, Fault> {
    let params = params(entry, launch)?;
    let shared = shared(entry, launch)?;
    let threads = threads(entry, launch)?;
    let code = &entry.code;
    let mut machine = Machine {
        program: &entry.program,
        registers: &code.registers,
        memory,
        block: 0,
        shared: Shared::new(shared),
        params: &params,
        statics: &entry.statics,
        counts: Counts::default(),
        mma_flops: [0; KINDS.len()],
        limit: launch.limit,
        warps: threads.div_ceil(32) as usize,
        tensor: Tensor::default(),
    };
    let mut warps: Vec<Warp> = (0..threads.div_ceil(32))
        .map(|index| Warp::new(index as u16, &entry.program, code.registers.len(), code.local_bytes as usize))
        .collect();
    let [columns, rows, layers] = launch.grid;
    for linear in 0..columns * rows * layers {
        let block = Block {
            index: [linear % columns, linear / columns % rows, linear / (columns * rows)],
            linear,
            grid: launch.grid,
            threads: launch.block,
            dynamic_shared: launch.shared_bytes,
            shared: shared as u32,
        };
        run(&mut machine, &mut warps, &block, threads)
            .map_err(|(warp, fail)| fault(entry, launch, &block, &warps[warp], *fail.trouble, fail.lane))?;
    }
    let mut counts = machine.counts;
    let named = KINDS.iter().zip(machine.mma_flops);
    counts.mma_flops =
        named.filter(|(_, flops)| *flops > 0).map(|(name, flops)| ((*name).to_owned(), flops)).collect();
    Ok(counts)
}

/// One block: every warp runs until it ends or waits; then the barriers that are full open.
fn run(
    machine: &mut Machine<'_>,
    warps: &mut [Warp],
    block: &Block,
    threads: u32,
) -> Result<(), (usize, Fail)> {
    machine.shared.clear();
    machine.tensor = Tensor::new(machine.warps);
    machine.block = u64::from(block.linear);
    for warp in warps.iter_mut() {
        warp.start(block);
    }
    loop {
        for (index, warp) in warps.iter_mut().enumerate() {
            if warp.waiting.is_none() && !warp.ended() {
                warp.run(machine).map_err(|fail| (index, fail))?;
                machine.counts.longest_warp = machine.counts.longest_warp.max(warp.executed);
            }
        }
        if warps.iter().any(|warp| warp.waiting.is_none() && !warp.ended()) {
            // It polls for something that another warp may have done by now.
            continue;
        }
        let Some(first) = warps.iter().find_map(|warp| warp.waiting) else { return finished(machine, warps) };
        open(machine, warps, first, threads)?;
    }
}

/// That a block that ended leaves nothing under way, and that its warpgroups did the same together.
fn finished(machine: &Machine<'_>, warps: &[Warp]) -> Result<(), (usize, Fail)> {
    for (index, warp) in warps.iter().enumerate() {
        let first = warps[index / 4 * 4].flight.history();
        let trouble = if warp.flight.is_busy() {
            Trouble::Race { what: "the kernel ends while a tensor core is still at work for it".to_owned() }
        } else if warp.flight.history() != first {
            let what = "the warps of a warpgroup did not issue the same wgmma instructions".to_owned();
            Trouble::Divergent { what }
        } else {
            continue;
        };
        return Err((index, Fail::at(0, trouble)));
    }
    machine.tensor.finished().map_err(|trouble| (0, Fail::at(0, trouble)))
}

/// Opens a barrier that is full; there is one, or the warps wait for ever.
fn open(
    machine: &mut Machine<'_>,
    warps: &mut [Warp],
    first: Waiting,
    threads: u32,
) -> Result<(), (usize, Fail)> {
    let waiting: Vec<Waiting> = warps.iter().filter_map(|warp| warp.waiting).collect();
    let running = warps.iter().filter(|warp| !warp.ended()).count();
    for barrier in waiting {
        let here = warps.iter().filter(|warp| warp.waiting == Some(barrier));
        let all = here.clone().count() == running;
        // A warp counts whole.
        let arrived = 32 * here.clone().count() as u64;
        match barrier.threads {
            None if all => machine.shared.barrier(),
            Some(wanted) if arrived >= wanted && wanted == u64::from(threads) => machine.shared.barrier(),
            Some(wanted) if arrived >= wanted => machine.shared.partial_barrier(),
            _ => continue,
        }
        let met: Vec<usize> = here.map(|warp| usize::from(warp.index)).collect();
        machine.tensor.order.meet(&met);
        for warp in warps.iter_mut().filter(|warp| warp.waiting == Some(barrier)) {
            warp.waiting = None;
        }
        return Ok(());
    }
    let what = format!("the block's warps wait for each other, some at barrier {}", first.id);
    let index = warps.iter().position(|warp| warp.waiting == Some(first)).unwrap_or(0);
    Err((index, Fail::at(0, Trouble::Divergent { what })))
}

/// The parameters' bytes at their places.
fn params(entry: &Entry, launch: &Launch<'_>) -> Result<Vec<u8>, Fault> {
    let given: Vec<usize> = launch.params.iter().map(Vec::len).collect();
    let wanted: Vec<usize> = entry.params().iter().map(|param| param.bytes).collect();
    if given != wanted {
        return Err(Fault::Params(format!(
            "{} takes parameters of {wanted:?} bytes; {given:?} are given",
            entry.name()
        )));
    }
    let mut bytes = vec![0; entry.params().last().map_or(0, |last| last.offset + last.bytes)];
    for (param, value) in entry.params().iter().zip(launch.params) {
        bytes[param.offset..param.offset + param.bytes].copy_from_slice(value);
    }
    Ok(bytes)
}

/// Shared memory of a block, static and dynamic.
fn shared(entry: &Entry, launch: &Launch<'_>) -> Result<usize, Fault> {
    let code = &entry.code;
    let bytes = if launch.shared_bytes == 0 {
        code.shared_bytes
    } else {
        code.dynamic_shared + u64::from(launch.shared_bytes)
    };
    if bytes > MOST_SHARED {
        return Err(Fault::Params(format!("{} with {bytes} bytes of shared memory a block", entry.name())));
    }
    usize::try_from(bytes).map_err(|_| Fault::Params(format!("{bytes} bytes of shared memory")))
}

fn threads(entry: &Entry, launch: &Launch<'_>) -> Result<u32, Fault> {
    let product =
        |of: [u32; 3]| of.iter().try_fold(1_u64, |product, &size| product.checked_mul(u64::from(size)));
    let threads = product(launch.block).filter(|threads| (1..=MOST_THREADS).contains(threads));
    let blocks = product(launch.grid).filter(|blocks| (1..=u64::from(u32::MAX)).contains(blocks));
    match (threads, blocks) {
        (Some(threads), Some(_)) => Ok(threads as u32),
        _ => Err(Fault::Params(format!(
            "{} cannot have a grid of {:?} blocks of {:?} threads",
            entry.name(),
            launch.grid,
            launch.block
        ))),
    }
}

/// The fault of a lane, with where it was.
fn fault(
    entry: &Entry,
    launch: &Launch<'_>,
    block: &Block,
    warp: &Warp,
    trouble: Trouble,
    lane: usize,
) -> Fault {
    // A warp that waits is already past the barrier.
    let index = if warp.waiting.is_some() { warp.at().saturating_sub(1) } else { warp.at() };
    let statement = entry.code.statements.get(index);
    let at = Box::new(FaultLocation {
        entry: entry.name().to_owned(),
        instruction: statement.map_or(String::new(), |statement| statement.text.clone()),
        line: statement.map_or(0, |statement| statement.line),
        block: block.index,
        thread: block.thread(u32::from(warp.index), lane as u32),
    });
    match trouble {
        Trouble::Misaligned { address, bytes } => Fault::Misaligned { address, bytes, at },
        Trouble::Memory { address, what } => Fault::Memory { address, what, at },
        Trouble::Unsupported { what } => Fault::Unsupported { instruction: what, at },
        Trouble::Divergent { what } => Fault::Divergent { what, at },
        Trouble::Uninitialised { what } => Fault::Uninitialised { what, at },
        Trouble::Race { what } => Fault::Race { what, at },
        Trouble::Descriptor { what } => Fault::Descriptor { what, at },
        Trouble::Timeout => Fault::Timeout { limit: launch.limit, at },
    }
}
