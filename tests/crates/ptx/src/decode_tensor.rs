//! Decodes instructions of warpgroups, of tensor memory and of mbarriers.

use crate::barrier::Barrier;
use crate::decode::{Decoder, register, registers, sink};
use crate::operation::Operation;
use crate::parse::Operand;
use crate::tcgen05::{Kind, Multiply, Tcgen05};
use crate::warpgroup::{self, Wgmma};

impl Decoder<'_> {
    /// `wgmma`; None where something of it is not known.
    pub(crate) fn warpgroup(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let wgmma = match (words, operands) {
            (["fence", "sync", "aligned"], []) => Wgmma::Fence,
            (["commit_group", "sync", "aligned"], []) => Wgmma::Commit,
            (["wait_group", "sync", "aligned"], [Operand::Immediate(left)]) => Wgmma::Wait { left: *left },
            (["mma_async", "sync", "aligned", rest @ ..], [d, a, b, add, constants @ ..]) => {
                let constants: Vec<u64> = constants
                    .iter()
                    .map(|constant| match constant {
                        Operand::Immediate(value) => Some(*value),
                        _ => None,
                    })
                    .collect::<Option<_>>()?;
                // A in registers is not known.
                let descriptors = [self.word(a)?, self.word(b)?];
                let (d, add) = (registers(d)?, self.predicate(add)?);
                let multiply = warpgroup::Multiply::named(rest, &constants, d, descriptors, add)?;
                Wgmma::Multiply(Box::new(multiply))
            }
            _ => return None,
        };
        Some(Operation::Warpgroup(wgmma))
    }

    pub(crate) fn elect(&mut self, operands: &[Operand]) -> Option<Operation> {
        let [Operand::Pair(d, p), members] = operands else { return None };
        Some(Operation::Elect { d: sink(d)?, p: register(p)?, members: self.source(members)? })
    }

    /// `mbarrier` in the block's own shared memory.
    pub(crate) fn mbarrier(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let (&name, words) = words.split_first()?;
        let hints = ["shared", "shared::cta", "b64", "parity", "acquire", "release", "cta"];
        if !words.iter().all(|word| hints.contains(word)) || !words.iter().any(|word| word.contains("shared"))
        {
            return None;
        }
        let barrier = match (name, operands) {
            ("init", [address, count]) => {
                Barrier::Init { address: self.address(address)?, count: self.source(count)? }
            }
            ("inval", [address]) => Barrier::Invalidate { address: self.address(address)? },
            ("arrive", [state, address]) if sink(state)?.is_none() => {
                Barrier::Arrive { address: self.address(address)? }
            }
            ("try_wait" | "test_wait", [p, address, parity]) if words.contains(&"parity") => Barrier::Wait {
                p: register(p)?,
                address: self.address(address)?,
                parity: self.source(parity)?,
            },
            _ => return None,
        };
        Some(Operation::Synchronise(barrier))
    }

    pub(crate) fn tensor(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let tensor = match (words, operands) {
            (["alloc", "cta_group::1", "sync", "aligned", "shared::cta", "b32"], [into, columns]) => {
                Tcgen05::Allocate { into: self.address(into)?, columns: self.source(columns)? }
            }
            (["dealloc", "cta_group::1", "sync", "aligned", "b32"], [address, columns]) => {
                Tcgen05::Free { address: self.source(address)?, columns: self.source(columns)? }
            }
            (["relinquish_alloc_permit", "cta_group::1", "sync", "aligned"], []) => Tcgen05::Relinquish,
            (["fence::before_thread_sync"], []) => Tcgen05::FenceBefore,
            (["fence::after_thread_sync"], []) => Tcgen05::FenceAfter,
            (["wait::ld", "sync", "aligned"], []) => Tcgen05::WaitForLoads,
            (["wait::st", "sync", "aligned"], []) => Tcgen05::WaitForStores,
            (["ld", "sync", "aligned", "32x32b", count, "b32"], [into, address]) => {
                let (into, address) = (registers(into)?, self.address(address)?);
                is_count(count, into.len()).then_some(Tcgen05::Load { into, address })?
            }
            (["st", "sync", "aligned", "32x32b", count, "b32"], [address, from]) => {
                let (from, address) = (self.fragment(from)?, self.address(address)?);
                is_count(count, from.len()).then_some(Tcgen05::Store { from, address })?
            }
            (["mma", "cta_group::1", kind], [d, a, b, instruction, add]) => {
                let kind = Kind::named(kind)?;
                if matches!(kind, Kind::Mxf8f6f4 | Kind::Mxf4 | Kind::Mxf4nvf4) {
                    return None;
                }
                Tcgen05::Multiply(Box::new(Multiply {
                    kind,
                    d: self.address(d)?,
                    descriptors: [self.word(a)?, self.word(b)?],
                    instruction: self.word(instruction)?,
                    scales: None,
                    add: self.predicate(add)?,
                }))
            }
            (
                ["mma", "cta_group::1", kind, "block_scale", size @ ..],
                [d, a, b, instruction, scale_a, scale_b, add],
            ) => {
                let kind = Kind::named(kind)?;
                let blocks = match size {
                    [] => kind.blocks(None)?,
                    [size] => kind.blocks(Some(size))?,
                    _ => return None,
                };
                Tcgen05::Multiply(Box::new(Multiply {
                    kind,
                    d: self.address(d)?,
                    descriptors: [self.word(a)?, self.word(b)?],
                    instruction: self.word(instruction)?,
                    scales: Some(([self.address(scale_a)?, self.address(scale_b)?], blocks)),
                    add: self.predicate(add)?,
                }))
            }
            (["cp", "cta_group::1", "32x128b", "warpx4"], [to, from]) => {
                Tcgen05::Copy { to: self.address(to)?, from: self.word(from)? }
            }
            (["commit", "cta_group::1", "mbarrier::arrive::one", "shared::cluster", "b64"], [address]) => {
                Tcgen05::Commit { address: self.address(address)? }
            }
            _ => return None,
        };
        Some(Operation::Tensor(tensor))
    }

    /// A fence of the asynchronous proxy, where it is about shared memory.
    pub(crate) fn fence(words: &[&str]) -> Operation {
        match words {
            ["proxy", "async"] | ["proxy", "async", "shared::cta" | "shared::cluster"] => {
                Operation::Synchronise(Barrier::ProxyFence)
            }
            ["mbarrier_init", "release", "cluster"] => Operation::Synchronise(Barrier::InitFence),
            _ => Operation::Nothing,
        }
    }

    /// A source that is one register or constant, not the registers of a matrix or an address.
    fn word(&mut self, operand: &Operand) -> Option<usize> {
        match operand {
            Operand::Register(_) | Operand::Immediate(_) => self.source(operand),
            _ => None,
        }
    }
}

/// Whether `x8` says as many.
fn is_count(word: &str, count: usize) -> bool {
    count.is_power_of_two() && count <= 128 && word.strip_prefix('x').is_some_and(|n| n == count.to_string())
}
