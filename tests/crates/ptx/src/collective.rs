//! Instructions in which lanes see one another's values.

use crate::convert::Conversion;

use crate::lanes::{Function, Lanes};
use crate::operation::{Join, Operation, ShuffleMode, VoteMode};
use crate::warp::{Fail, Machine, Trouble, Warp, lanes_of};

impl Join {
    pub fn of(self, a: u32, b: u32) -> u32 {
        match self {
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
        }
    }
}

/// All lanes of a conversion.
pub(crate) fn convert(conversion: Conversion, a: &Lanes, b: &Lanes, register: u32) -> Lanes {
    match conversion {
        Conversion::One(convert) => a.map(|bits| convert.apply(bits, register)),
        Conversion::Two(pack) if pack.packed => a.map(|word| {
            let (upper, lower) = pack.split(word);
            pack.apply(upper, lower)
        }),
        Conversion::Two(pack) => std::array::from_fn(|lane| pack.apply(a[lane], b[lane])),
    }
}

/// Runs a shuffle, vote, reduction or warp barrier.
pub(crate) fn step(
    warp: &mut Warp,
    machine: &Machine<'_>,
    operation: &Operation,
    active: u32,
) -> Result<(), Fail> {
    match *operation {
        Operation::Shuffle { mode, d, p, a, b, c, members } => {
            let members = members_of(warp, machine, members, active)?;
            let (b, c) = (*warp.read(machine, b, active)?, *warp.read(machine, c, active)?);
            let mut lanes = [0; 32];
            let mut inside = 0;
            for lane in lanes_of(active) {
                let (from, within) = source(mode, lane as u32, b[lane] as u32, c[lane] as u32);
                if members[lane] as u32 >> from & 1 == 0 || active >> from & 1 == 0 {
                    let what = format!("lane {lane} shuffles from lane {from}, which does not take part");
                    return Err(Fail::at(lane, Trouble::Divergent { what }));
                }
                lanes[lane] = warp.read(machine, a, 1 << from)?[from as usize] & 0xffff_ffff;
                inside |= u32::from(within) << lane;
            }
            warp.write(d, &lanes, active);
            if let Some(p) = p {
                warp.set_predicate(p, inside, active);
            }
        }
        Operation::Vote { mode, d, by, members } => {
            let members = members_of(warp, machine, members, active)?;
            let votes = warp.predicate(machine, by, active)?;
            let of = |lane: usize| (votes & members[lane] as u32, members[lane] as u32);
            let holds = |test: fn(u32, u32) -> bool| {
                lanes_of(active).fold(0, |mask, lane| {
                    let (votes, members) = of(lane);
                    mask | u32::from(test(votes, members)) << lane
                })
            };
            match mode {
                VoteMode::All => warp.set_predicate(d, holds(|votes, members| votes == members), active),
                VoteMode::Any => warp.set_predicate(d, holds(|votes, _| votes != 0), active),
                VoteMode::Uniform => {
                    warp.set_predicate(d, holds(|votes, members| votes == 0 || votes == members), active);
                }
                VoteMode::Ballot => {
                    let lanes = std::array::from_fn(|lane| u64::from(of(lane).0));
                    warp.write(d, &lanes, active);
                }
            }
        }
        Operation::Reduce { function, d, a, members } => {
            let members = members_of(warp, machine, members, active)?;
            let from = *warp.read(machine, a, active)?;
            let mut lanes = [0; 32];
            for lane in lanes_of(active) {
                let mut taking_part = lanes_of(members[lane] as u32).map(|member| from[member]);
                let first = taking_part.next().unwrap_or(0);
                lanes[lane] = taking_part.fold(first, |sum, value| combined(function, sum, value));
            }
            warp.write(d, &lanes, active);
        }
        Operation::Elect { d, p, members } => {
            members_of(warp, machine, members, active)?;
            // Which lane is not said, but that it is the same for the same members: the last is one that no kernel
            // may count on.
            let leader = 31 - active.leading_zeros();
            if let Some(d) = d {
                warp.write(d, &[u64::from(leader); 32], active);
            }
            warp.set_predicate(p, 1 << leader, active);
        }
        Operation::Members { members } => {
            members_of(warp, machine, members, active)?;
            if active == warp.live() {
                warp.meet();
            }
        }
        _ => {}
    }
    Ok(())
}

fn combined(function: Function, a: u64, b: u64) -> u64 {
    let mut lanes = [0; 32];
    if let Function::Two(run) = function {
        run(&[a; 32], &[b; 32], &mut lanes);
    }
    lanes[0]
}

/// The member masks, each of which must name its own lane, and together the lanes that are here.
fn members_of(warp: &Warp, machine: &Machine<'_>, register: usize, active: u32) -> Result<Lanes, Fail> {
    let members = *warp.read(machine, register, active)?;
    let mut all = 0;
    for lane in lanes_of(active) {
        let mask = members[lane] as u32;
        if mask >> lane & 1 == 0 {
            let what = format!("lane {lane} is not in its own member mask {mask:#010x}");
            return Err(Fail::at(lane, Trouble::Divergent { what }));
        }
        all |= mask;
    }
    if all == active {
        return Ok(members);
    }
    let what = format!("the member mask names the lanes {all:#010x}; the lanes {active:#010x} are here");
    Err(Fail::at((all & !active).trailing_zeros().min(31) as usize, Trouble::Divergent { what }))
}

/// The lane that a lane takes its value from, and whether that is inside its segment.
fn source(mode: ShuffleMode, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let last = (lane & segment) | (clamp & !segment);
    let first = lane & segment;
    let (from, inside) = match mode {
        ShuffleMode::Up => (lane.wrapping_sub(b), lane.cast_signed() - b.cast_signed() >= last.cast_signed()),
        ShuffleMode::Down => (lane + b, lane + b <= last),
        ShuffleMode::Butterfly => (lane ^ b, lane ^ b <= last),
        ShuffleMode::Index => {
            let from = first | (b & !segment);
            (from, from <= last)
        }
    };
    if inside { (from, true) } else { (lane, false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(mode: ShuffleMode, b: u32, c: u32) -> Vec<u32> {
        (0..32).map(|lane| source(mode, lane, b, c).0).collect()
    }

    #[test]
    fn each_shuffle_mode_takes_from_the_lane_it_names() {
        // A width of 32: the segment mask is 0; of 8: 24.
        let whole = 0x1f;
        let eight = 24 << 8 | 0x1f;
        let butterfly: Vec<u32> = (0..32).map(|lane| lane ^ 16).collect();
        assert_eq!(sources(ShuffleMode::Butterfly, 16, whole), butterfly);
        let down: Vec<u32> = (0..32).map(|lane| if lane < 30 { lane + 2 } else { lane }).collect();
        assert_eq!(sources(ShuffleMode::Down, 2, whole), down);
        let down: Vec<u32> = (0..32).map(|lane| if lane % 8 < 6 { lane + 2 } else { lane }).collect();
        assert_eq!(sources(ShuffleMode::Down, 2, eight), down);
        let up: Vec<u32> = (0..32).map(|lane| if lane % 8 >= 3 { lane - 3 } else { lane }).collect();
        assert_eq!(sources(ShuffleMode::Up, 3, 24 << 8), up);
        let index: Vec<u32> = (0..32).map(|lane| lane / 8 * 8 + 5).collect();
        assert_eq!(sources(ShuffleMode::Index, 5, eight), index);
        assert_eq!(sources(ShuffleMode::Index, 13, eight), index);
        assert!(!source(ShuffleMode::Down, 31, 1, whole).1);
        assert!(!source(ShuffleMode::Up, 0, 1, 0).1);
        assert!(source(ShuffleMode::Up, 1, 1, 0).1);
    }
}
