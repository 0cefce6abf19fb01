//! A warp: its registers, and the loop that runs its instructions.
//!
//! Lanes that are at the same instruction are a group and run together; of several groups the one that is furthest
//! behind runs, so that lanes meet again where a compiler laid the code for it.

use crate::Counts;
use crate::access::Address;
use crate::lanes::{Function, Lanes};
use crate::memory::Memory;
use crate::operation::{Instruction, Operation, Predicate, Program};
use crate::parse::Register;
use crate::shared::{Shared, Thread};
use crate::special::Block;
use crate::tensor::Tensor;
use crate::warpgroup::Flight;
use crate::{collective, float, special};

/// What is wrong, without where.
#[derive(Debug)]
pub(crate) enum Trouble {
    Misaligned { address: u64, bytes: usize },
    Memory { address: u64, what: String },
    Unsupported { what: String },
    Divergent { what: String },
    Uninitialised { what: String },
    Race { what: String },
    Descriptor { what: String },
    Timeout,
}

/// What is wrong, and with which lane.
#[derive(Debug)]
pub(crate) struct Fail {
    pub lane: usize,
    pub trouble: Box<Trouble>,
}

impl Fail {
    pub fn at(lane: usize, trouble: Trouble) -> Self {
        Self { lane, trouble: Box::new(trouble) }
    }
}

/// The lanes of a mask in order.
pub(crate) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

/// Everything of a launch but the warps.
pub(crate) struct Machine<'a> {
    pub program: &'a Program,
    pub registers: &'a [Register],
    pub memory: &'a mut dyn Memory,
    /// The block that runs, by number.
    pub block: u64,
    pub shared: Shared,
    pub params: &'a [u8],
    pub statics: &'a [u8],
    pub counts: Counts,
    pub mma_flops: [u64; crate::mma::KINDS.len()],
    pub limit: u64,
    /// Warps of a block.
    pub warps: usize,
    pub tensor: Tensor,
}

/// Lanes at one instruction.
#[derive(Debug, Clone, Copy)]
struct Group {
    at: usize,
    mask: u32,
}

/// A barrier that a warp waits at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub id: u64,
    /// Threads that take part; all of the block where None.
    pub threads: Option<u64>,
}

/// The registers and the state of a warp.
pub(crate) struct Warp {
    pub index: u16,
    file: Vec<Lanes>,
    /// The lanes of each register that are written.
    written: Vec<u32>,
    /// Predicate registers; the one past the last is true.
    predicates: Vec<u32>,
    local: Vec<u8>,
    /// The group furthest behind is last.
    groups: Vec<Group>,
    pub waiting: Option<Waiting>,
    pub executed: u64,
    /// Barriers of the warp's own lanes so far.
    meetings: u32,
    /// When each register was written last, in instructions of the warp.
    stamps: Vec<u64>,
    pub flight: Flight,
}

/// Where the lanes go after an instruction.
enum Next {
    Following,
    Jump(usize),
    End,
    Wait,
    /// On by one, and other warps first.
    Yield,
}

impl Warp {
    pub fn new(index: u16, program: &Program, registers: usize, local_bytes: usize) -> Self {
        let mut file = vec![[0; 32]; registers + special::NAMES.len()];
        file.extend(program.constants.iter().map(|&value| [value; 32]));
        let written = vec![u32::MAX; file.len()];
        Self {
            index,
            stamps: vec![0; file.len()],
            flight: Flight::default(),
            file,
            written,
            predicates: vec![0; registers + 1],
            local: vec![0; 32 * local_bytes],
            groups: Vec::new(),
            waiting: None,
            executed: 0,
            meetings: 0,
        }
    }

    /// Ready to run a block from its first instruction.
    pub fn start(&mut self, block: &Block) {
        let registers = self.predicates.len() - 1;
        self.written[..registers].fill(0);
        self.predicates[registers] = u32::MAX;
        for which in 0..special::NAMES.len() {
            self.file[registers + which] = block.lanes(which, u32::from(self.index));
        }
        // What is not written shows as a NaN.
        self.local.fill(0xff);
        let threads = block.threads.iter().product::<u32>() - u32::from(self.index) * 32;
        let mask = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
        self.groups = vec![Group { at: 0, mask }];
        self.waiting = None;
        self.executed = 0;
        self.meetings = 0;
        self.stamps.fill(0);
        self.flight = Flight::default();
    }

    /// The lane as a user of shared memory.
    pub fn thread(&self, lane: usize) -> Thread {
        Thread { warp: self.index, lane: lane as u16, meetings: self.meetings }
    }

    /// All lanes that have not ended have met.
    pub fn meet(&mut self) {
        self.meetings += 1;
    }

    pub fn ended(&self) -> bool {
        self.groups.is_empty()
    }

    /// The lanes that have not ended.
    pub fn live(&self) -> u32 {
        self.groups.iter().fold(0, |mask, group| mask | group.mask)
    }

    /// The next instruction's number.
    pub fn at(&self) -> usize {
        self.groups.last().map_or(0, |group| group.at)
    }

    #[inline]
    pub fn read(&self, machine: &Machine<'_>, register: usize, active: u32) -> Result<&Lanes, Fail> {
        let missing = active & !self.written[register];
        if missing != 0 {
            return Err(uninitialised(machine, register, missing));
        }
        Ok(&self.file[register])
    }

    #[inline]
    pub fn write(&mut self, register: usize, lanes: &Lanes, active: u32) {
        self.written[register] |= active;
        self.stamps[register] = self.executed;
        let to = &mut self.file[register];
        if active == u32::MAX {
            *to = *lanes;
        } else {
            for lane in 0..32 {
                if active >> lane & 1 == 1 {
                    to[lane] = lanes[lane];
                }
            }
        }
    }

    /// A register as an asynchronous instruction of the warp left it.
    pub fn peek(&self, register: usize) -> &Lanes {
        &self.file[register]
    }

    /// When a register was written last, other than by an asynchronous instruction.
    pub fn stamp(&self, register: usize) -> u64 {
        self.stamps[register]
    }

    /// A register that an asynchronous instruction writes: nobody may use it until [`Self::settle`].
    pub fn write_later(&mut self, register: usize, lanes: &Lanes) {
        self.file[register] = *lanes;
        self.written[register] = 0;
    }

    /// A register is written and may be used; false where somebody wrote to it meanwhile.
    pub fn settle(&mut self, register: usize) -> bool {
        std::mem::replace(&mut self.written[register], u32::MAX) == 0
    }

    pub fn predicate(&self, machine: &Machine<'_>, by: Predicate, active: u32) -> Result<u32, Fail> {
        let missing = active & !self.written[by.0];
        if missing != 0 {
            return Err(uninitialised(machine, by.0, missing));
        }
        Ok(self.predicates[by.0] ^ if by.1 { u32::MAX } else { 0 })
    }

    pub fn set_predicate(&mut self, register: usize, value: u32, active: u32) {
        self.written[register] |= active;
        let to = &mut self.predicates[register];
        *to = (*to & !active) | (value & active);
    }

    pub fn local_of(&self, lane: usize) -> &[u8] {
        let size = self.local.len() / 32;
        &self.local[lane * size..(lane + 1) * size]
    }

    pub fn local_of_mut(&mut self, lane: usize) -> &mut [u8] {
        let size = self.local.len() / 32;
        &mut self.local[lane * size..(lane + 1) * size]
    }

    /// Runs until the warp ends or waits at a barrier.
    pub fn run(&mut self, machine: &mut Machine<'_>) -> Result<(), Fail> {
        let program = machine.program;
        while let Some(&Group { at, mask }) = self.groups.last() {
            let Some(instruction) = program.instructions.get(at) else {
                self.groups.pop();
                continue;
            };
            if machine.counts.warp_instructions >= machine.limit {
                return Err(Fail::at(mask.trailing_zeros() as usize, Trouble::Timeout));
            }
            machine.counts.warp_instructions += 1;
            self.executed += 1;
            let active = match instruction.guard {
                Some(guard) => mask & self.predicate(machine, guard, mask)?,
                None => mask,
            };
            let next = if active == 0 { Next::Following } else { self.step(machine, instruction, active)? };
            match next {
                Next::Following => self.advance(),
                Next::Jump(target) => self.split(target, active),
                Next::End => self.end(active),
                Next::Wait | Next::Yield => {
                    self.advance();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The last group goes on by one, maybe to where the one before it waits.
    fn advance(&mut self) {
        let Some(group) = self.groups.last_mut() else { return };
        group.at += 1;
        let group = *group;
        if let [.., other, _] = self.groups.as_mut_slice()
            && other.at == group.at
        {
            other.mask |= group.mask;
            self.groups.pop();
        }
    }

    /// The active lanes of the last group go to the target, the others on by one.
    fn split(&mut self, target: usize, active: u32) {
        let Some(group) = self.groups.pop() else { return };
        self.insert(Group { at: target, mask: active });
        let rest = group.mask & !active;
        if rest != 0 {
            self.insert(Group { at: group.at + 1, mask: rest });
        }
    }

    fn end(&mut self, active: u32) {
        let Some(group) = self.groups.pop() else { return };
        let rest = group.mask & !active;
        if rest != 0 {
            self.insert(Group { at: group.at + 1, mask: rest });
        }
    }

    fn insert(&mut self, group: Group) {
        let place = self.groups.partition_point(|other| other.at > group.at);
        match self.groups.get_mut(place) {
            Some(other) if other.at == group.at => other.mask |= group.mask,
            _ => self.groups.insert(place, group),
        }
    }

    fn step(
        &mut self,
        machine: &mut Machine<'_>,
        instruction: &Instruction,
        active: u32,
    ) -> Result<Next, Fail> {
        match &instruction.operation {
            &Operation::Compute { function, d, sources, flops, flush, saturate } => {
                let lanes = self.compute(machine, function, sources, active, flush)?;
                let lanes = if flush || saturate { adjusted(&lanes, flush, saturate) } else { lanes };
                machine.counts.fma_flops += u64::from(flops * active.count_ones());
                self.write(d, &lanes, active);
            }
            Operation::Branch { target } => return Ok(Next::Jump(*target)),
            Operation::Exit => return Ok(Next::End),
            Operation::Load { access, into, address } => {
                machine.load(self, access, into, *address, active)?;
            }
            Operation::Store { access, from, address } => {
                machine.store(self, access, from, *address, active)?;
            }
            Operation::Barrier { id, threads } => {
                self.whole(active, "a barrier")?;
                let lane = active.trailing_zeros() as usize;
                let id = self.read(machine, *id, active)?[lane];
                let threads = match threads {
                    Some(threads) => Some(self.read(machine, *threads, active)?[lane]),
                    None => None,
                };
                self.waiting = Some(Waiting { id, threads });
                return Ok(Next::Wait);
            }
            Operation::Atomic { atomic, d, address, b, c } => {
                machine.atomic(self, atomic, *d, *address, [*b, *c], active)?;
            }
            Operation::Mma { mma, d, a, b, c, scales } => {
                self.whole(active, "mma")?;
                mma.run(machine, self, d, [a, b, c], *scales)?;
            }
            Operation::Warpgroup(wgmma) => {
                self.whole(active, "an instruction of a warpgroup")?;
                wgmma.run(machine, self)?;
            }
            Operation::Tensor(tensor) => {
                if tensor.is_aligned() {
                    self.whole(active, "an aligned instruction of tensor memory")?;
                }
                tensor.run(machine, self, active)?;
            }
            Operation::Synchronise(barrier) => {
                if barrier.run(machine, self, active)? {
                    return Ok(Next::Yield);
                }
            }
            Operation::LoadMatrix { into, address, transposed } => {
                self.whole(active, "ldmatrix")?;
                machine.load_matrix(self, into, *address, *transposed)?;
            }
            Operation::Unsupported { why } => {
                let what = why.clone();
                return Err(Fail::at(active.trailing_zeros() as usize, Trouble::Unsupported { what }));
            }
            Operation::Nothing => {}
            Operation::Shuffle { .. }
            | Operation::Vote { .. }
            | Operation::Reduce { .. }
            | Operation::Elect { .. }
            | Operation::Members { .. } => collective::step(self, machine, &instruction.operation, active)?,
            other => self.simple(machine, other, active)?,
        }
        Ok(Next::Following)
    }

    /// Instructions that touch nothing but the lanes' own registers, beside those that compute.
    fn simple(&mut self, machine: &Machine<'_>, operation: &Operation, active: u32) -> Result<(), Fail> {
        match *operation {
            Operation::Convert { conversion, d, a, b, register } => {
                let (a, b) = (self.read(machine, a, active)?, self.read(machine, b, active)?);
                let lanes = collective::convert(conversion, a, b, register);
                self.write(d, &lanes, active);
            }
            Operation::Compare { comparison, d, inverse, a, b, join, flush } => {
                let (a, b) = (self.read(machine, a, active)?, self.read(machine, b, active)?);
                let holds = if flush { comparison(&flushed(a), &flushed(b)) } else { comparison(a, b) };
                let (mut value, mut opposite) = (holds, !holds);
                if let Some((join, by)) = join {
                    let by = self.predicate(machine, by, active)?;
                    (value, opposite) = (join.of(value, by), join.of(opposite, by));
                }
                if let Some(d) = d {
                    self.set_predicate(d, value, active);
                }
                if let Some(inverse) = inverse {
                    self.set_predicate(inverse, opposite, active);
                }
            }
            Operation::Set { comparison, d, a, b, truth } => {
                let holds = comparison(self.read(machine, a, active)?, self.read(machine, b, active)?);
                let lanes = std::array::from_fn(|lane| if holds >> lane & 1 == 1 { truth } else { 0 });
                self.write(d, &lanes, active);
            }
            Operation::Select { d, a, b, by } => {
                let by = self.predicate(machine, by, active)?;
                let (a, b) = (self.read(machine, a, active & by)?, self.read(machine, b, active & !by)?);
                let lanes = std::array::from_fn(|lane| if by >> lane & 1 == 1 { a[lane] } else { b[lane] });
                self.write(d, &lanes, active);
            }
            Operation::Logic { d, a, b, join } => {
                let value = join.of(self.predicate(machine, a, active)?, self.predicate(machine, b, active)?);
                self.set_predicate(d, value, active);
            }
            Operation::Pack { d, ref parts, bits } => {
                let mut lanes = [0; 32];
                for (index, &part) in parts.iter().enumerate() {
                    let from = self.read(machine, part, active)?;
                    for lane in 0..32 {
                        lanes[lane] |= (from[lane] & (u64::MAX >> (64 - bits))) << (index as u32 * bits);
                    }
                }
                self.write(d, &lanes, active);
            }
            Operation::Unpack { ref parts, a, bits } => {
                let from = *self.read(machine, a, active)?;
                for (index, part) in parts.iter().enumerate() {
                    let Some(part) = *part else { continue };
                    let lanes = from.map(|word| word >> (index as u32 * bits) & (u64::MAX >> (64 - bits)));
                    self.write(part, &lanes, active);
                }
            }
            Operation::Clock { d, shift, bits } => {
                let clock = machine.memory.clock(self.executed) >> shift & (u64::MAX >> (64 - bits));
                self.write(d, &[clock; 32], active);
            }
            Operation::ActiveMask { d } => self.write(d, &[u64::from(active); 32], active),
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn compute(
        &self,
        machine: &Machine<'_>,
        function: Function,
        [a, b, c, e]: [usize; 4],
        active: u32,
        flush: bool,
    ) -> Result<Lanes, Fail> {
        let mut lanes = [0; 32];
        let read = |register| self.read(machine, register, active);
        if flush {
            let read = |register| read(register).map(flushed);
            match function {
                Function::One(run) => run(&read(a)?, &mut lanes),
                Function::Two(run) => run(&read(a)?, &read(b)?, &mut lanes),
                Function::Three(run) => run(&read(a)?, &read(b)?, &read(c)?, &mut lanes),
                Function::Four(run) => run(&read(a)?, &read(b)?, &read(c)?, &read(e)?, &mut lanes),
            }
        } else {
            match function {
                Function::One(run) => run(read(a)?, &mut lanes),
                Function::Two(run) => run(read(a)?, read(b)?, &mut lanes),
                Function::Three(run) => run(read(a)?, read(b)?, read(c)?, &mut lanes),
                Function::Four(run) => run(read(a)?, read(b)?, read(c)?, read(e)?, &mut lanes),
            }
        }
        Ok(lanes)
    }

    /// That every lane that has not ended takes part.
    pub fn whole(&self, active: u32, what: &str) -> Result<(), Fail> {
        let live = self.live();
        let wanted = if what == "a barrier" { live } else { u32::MAX };
        if active == wanted {
            return Ok(());
        }
        let lane = (wanted & !active).trailing_zeros() as usize;
        let what = format!("{what} is reached by the lanes {active:#010x}, not by {wanted:#010x}");
        Err(Fail::at(lane, Trouble::Divergent { what }))
    }
}

fn flushed(lanes: &Lanes) -> Lanes {
    lanes.map(float::flush)
}

/// Single-precision results with subnormals flushed, or held between 0 and 1.
fn adjusted(lanes: &Lanes, flush: bool, saturate: bool) -> Lanes {
    lanes.map(|bits| {
        let bits = if flush { float::flush(bits) } else { bits };
        if saturate {
            let value = f32::from_bits(bits as u32);
            // A NaN becomes 0.
            u64::from(if value > 0.0 { value.min(1.0) } else { 0.0 }.to_bits())
        } else {
            bits
        }
    })
}

#[cold]
fn uninitialised(machine: &Machine<'_>, register: usize, missing: u32) -> Fail {
    let name = machine.registers.get(register).map_or("a register", |register| &register.name);
    let what = format!("{name} of the lanes {missing:#010x}");
    // Also one that an asynchronous instruction has yet to write.
    Fail::at(missing.trailing_zeros() as usize, Trouble::Uninitialised { what })
}

impl Address {
    /// A place that no register moves.
    pub fn fixed(offset: i64) -> Self {
        Self { base: None, offset }
    }
}
