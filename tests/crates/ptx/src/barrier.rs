//! mbarrier objects, and the fences that tell the asynchronous units of what threads wrote.

use crate::access::{Access, Address};
use crate::parse::Space;
use crate::tensor::MBarrier;
use crate::warp::{Fail, Machine, Trouble, Warp, lanes_of};

/// Instructions on mbarriers, and fences.
pub(crate) enum Barrier {
    Init {
        address: Address,
        count: usize,
    },
    Arrive {
        address: Address,
    },
    /// `mbarrier.try_wait.parity` and `test_wait`.
    Wait {
        p: usize,
        address: Address,
        parity: usize,
    },
    Invalidate {
        address: Address,
    },
    /// `fence.proxy.async`, of shared memory or all.
    ProxyFence,
    /// `fence.mbarrier_init`.
    InitFence,
}

/// The most arrivals that an mbarrier waits for.
const MOST: u64 = (1 << 20) - 1;
/// Bytes of an mbarrier.
const BYTES: usize = 8;

/// Where lanes have an mbarrier in shared memory.
pub(crate) fn address(
    machine: &Machine<'_>,
    warp: &Warp,
    address: Address,
    bytes: usize,
    active: u32,
) -> Result<[u64; 32], Fail> {
    let access = Access { space: Space::Shared, bytes, signed: false, register: 32, cached: false };
    Ok(machine.addresses(warp, &access, address, bytes, active)?.1)
}

impl Barrier {
    /// True where a lane waits in vain, so that others should run.
    pub fn run(&self, machine: &mut Machine<'_>, warp: &mut Warp, active: u32) -> Result<bool, Fail> {
        match *self {
            Self::ProxyFence | Self::InitFence => {
                for thread in lanes_of(active).map(|lane| warp.thread(lane)) {
                    if matches!(self, Self::ProxyFence) {
                        machine.shared.proxy_fence(thread);
                    }
                    let is_own =
                        |found: &&mut MBarrier| found.by.warp == thread.warp && found.by.lane == thread.lane;
                    let barriers = machine.tensor.barriers.values_mut();
                    barriers.filter(is_own).for_each(|barrier| barrier.is_fenced = true);
                }
            }
            Self::Init { address: at, count } => {
                let counts = *warp.read(machine, count, active)?;
                let addresses = address(machine, warp, at, BYTES, active)?;
                for lane in lanes_of(active) {
                    let (address, count) = (addresses[lane], counts[lane] & 0xffff_ffff);
                    if !(1..=MOST).contains(&count) {
                        let what = format!("an mbarrier of {count} arrivals");
                        return Err(Fail::at(lane, Trouble::Descriptor { what }));
                    }
                    let thread = warp.thread(lane);
                    machine
                        .shared
                        .write(thread, address, &count.to_le_bytes())
                        .map_err(|trouble| Fail::at(lane, trouble))?;
                    machine.tensor.barriers.insert(address, MBarrier::new(count as u32, thread));
                }
            }
            Self::Invalidate { address: at } => {
                let addresses = address(machine, warp, at, BYTES, active)?;
                for lane in lanes_of(active) {
                    seen(machine, warp, lane, addresses[lane])?;
                    machine.tensor.barriers.remove(&addresses[lane]);
                }
            }
            Self::Arrive { address: at } => {
                let addresses = address(machine, warp, at, BYTES, active)?;
                for lane in lanes_of(active) {
                    seen(machine, warp, lane, addresses[lane])?;
                    let clock = machine.tensor.order.published(warp.index);
                    let barrier = machine.tensor.barrier(addresses[lane]);
                    barrier.map_err(|trouble| Fail::at(lane, trouble))?.arrive(clock);
                }
            }
            Self::Wait { p, address: at, parity } => {
                let parities = *warp.read(machine, parity, active)?;
                let addresses = address(machine, warp, at, BYTES, active)?;
                let mut done = 0;
                for lane in lanes_of(active) {
                    seen(machine, warp, lane, addresses[lane])?;
                    let barrier = machine.tensor.barrier(addresses[lane]);
                    let barrier = barrier.map_err(|trouble| Fail::at(lane, trouble))?;
                    if u64::from(barrier.phase & 1) != parities[lane] & 1 {
                        done |= 1 << lane;
                        let clock = barrier.complete.clone();
                        machine.tensor.order.hear(warp.index, &clock);
                    }
                }
                warp.set_predicate(p, done, active);
                if let Some(lane) = lanes_of(active & !done).next() {
                    let Machine { tensor, shared, .. } = machine;
                    if let Ok(barrier) = tensor.barrier(addresses[lane]) {
                        barrier.deliver(shared);
                    }
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// That the lane knows of the mbarrier's initialisation.
pub(crate) fn seen(machine: &mut Machine<'_>, warp: &Warp, lane: usize, address: u64) -> Result<(), Fail> {
    let mut bytes = [0; BYTES];
    let read = machine.shared.read(warp.thread(lane), address, &mut bytes);
    read.map_err(|trouble| Fail::at(lane, trouble))
}
