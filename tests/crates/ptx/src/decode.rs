//! Instructions as written to instructions to run.

use std::collections::HashMap;

use crate::access::{Access, Address, Atomic, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, STATIC_WINDOW};
use crate::convert::Conversion;
use crate::lanes::Function;
use crate::mma::Mma;
use crate::operation::{Instruction, Join, Operation, Predicate, Program, ShuffleMode, VoteMode};
use crate::parse::{Code, Operand, Space, Statement, width};
use crate::{integer, real, special};

/// Decodes all instructions of an entry.
pub(crate) fn decode(code: &Code) -> Program {
    let mut decoder = Decoder { code, constants: Vec::new(), slots: HashMap::new() };
    let instructions = code
        .statements
        .iter()
        .map(|statement| Instruction { guard: statement.guard, operation: decoder.operation(statement) })
        .collect();
    Program { instructions, constants: decoder.constants }
}

/// Modifiers of loads that find their bytes in L2.
const PAST_L1: [&str; 6] = ["cg", "cv", "volatile", "relaxed", "acquire", "L1::no_allocate"];

pub(crate) struct Decoder<'a> {
    code: &'a Code,
    constants: Vec<u64>,
    slots: HashMap<u64, usize>,
}

/// Modifiers of loads and stores that change neither the bytes nor their order here.
const HINTS: [&str; 23] = [
    "weak",
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "sys",
    "gpu",
    "cta",
    "cluster",
    "nc",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "evict_first",
    "evict_last",
    "evict_normal",
    "no_allocate",
    "acq_rel",
    "mmio",
];

impl Decoder<'_> {
    fn operation(&mut self, statement: &Statement) -> Operation {
        let words: Vec<&str> = statement.opcode.iter().map(String::as_str).collect();
        self.decoded(&words, &statement.operands)
            .unwrap_or_else(|| Operation::Unsupported { why: words.join(".") })
    }

    /// None where something of the instruction is not known.
    fn decoded(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        match *words {
            ["mov", kind] => self.moved(kind, operands),
            ["cvta", ref rest @ ..] => self.address_space(rest, operands),
            ["ld" | "ldu", ref rest @ ..] => self.load(rest, operands),
            ["st", ref rest @ ..] => self.store(rest, operands),
            ["atom", ref rest @ ..] => self.atomic(rest, operands, true),
            ["red", ref rest @ ..] => self.atomic(rest, operands, false),
            ["cvt", ref rest @ ..] => self.convert(rest, operands),
            ["setp", operator, ref rest @ ..] => self.compare(operator, rest, operands),
            ["set", operator, ref rest @ ..] => self.set(operator, rest, operands),
            ["selp", kind] => {
                let [d, a, b, by] = operands else { return None };
                // Sources of a register are as narrow as their type; a negative constant is not.
                let bits = width(kind)?;
                let (a, b) = (self.narrow(a, bits)?, self.narrow(b, bits)?);
                Some(Operation::Select { d: register(d)?, a, b, by: self.predicate(by)? })
            }
            ["and" | "or" | "xor" | "not", "pred"] => self.logic(words[0], operands),
            ["shfl", "sync", mode, "b32"] => self.shuffle(mode, operands),
            ["vote", "sync", mode, _] => {
                let mode = match mode {
                    "all" => VoteMode::All,
                    "any" => VoteMode::Any,
                    "uni" => VoteMode::Uniform,
                    "ballot" => VoteMode::Ballot,
                    _ => return None,
                };
                let [d, by, members] = operands else { return None };
                let (by, members) = (self.predicate(by)?, self.source(members)?);
                Some(Operation::Vote { mode, d: register(d)?, by, members })
            }
            ["redux", "sync", name, kind] => {
                let [d, a, members] = operands else { return None };
                let function = integer::function(&[name, kind])?;
                let (a, members) = (self.source(a)?, self.source(members)?);
                Some(Operation::Reduce { function, d: register(d)?, a, members })
            }
            ["activemask", "b32"] => Some(Operation::ActiveMask { d: register(operands.first()?)? }),
            ["bar", "warp", "sync"] => Some(Operation::Members { members: self.source(operands.first()?)? }),
            ["bar" | "barrier", ref rest @ ..] => self.barrier(rest, operands),
            ["mma", ref rest @ ..] => self.mma(rest, operands),
            ["ldmatrix", "sync", "aligned", "m8n8", ref rest @ ..] => {
                let transposed = rest.contains(&"trans");
                let [into, address] = operands else { return None };
                let into = registers(into)?;
                let count: usize = rest.first()?.strip_prefix('x')?.parse().ok()?;
                let address = self.address(address)?;
                (count == into.len() && rest.last() == Some(&"b16")).then_some(Operation::LoadMatrix {
                    into,
                    address,
                    transposed,
                })
            }
            ["bra", ..] => match operands {
                [Operand::Name(label)] => Some(Operation::Branch { target: *self.code.labels.get(label)? }),
                _ => None,
            },
            ["ret" | "exit", ..] => Some(Operation::Exit),
            ["fence", ref rest @ ..] => Some(Self::fence(rest)),
            ["wgmma", ref rest @ ..] => self.warpgroup(rest, operands),
            ["tcgen05", ref rest @ ..] => self.tensor(rest, operands),
            ["mbarrier", ref rest @ ..] => self.mbarrier(rest, operands),
            ["elect", "sync"] => self.elect(operands),
            // One warp after the other: what is written is seen, and waiting changes nothing.
            ["membar" | "nanosleep" | "prefetch" | "prefetchu", ..] => Some(Operation::Nothing),
            _ => self.compute(words, operands),
        }
    }

    fn compute(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let [d, sources @ ..] = operands else { return None };
        let (function, flops, flush, saturate) = match integer::function(words) {
            Some(function) => (function, 0, false, false),
            None => {
                let real = real::function(words)?;
                (real.function, real.flops, real.flush, real.saturate)
            }
        };
        let wanted = match function {
            Function::One(_) => 1,
            Function::Two(_) => 2,
            Function::Three(_) => 3,
            Function::Four(_) => 4,
        };
        if sources.len() != wanted {
            return None;
        }
        let mut slots = [0; 4];
        for (slot, operand) in slots.iter_mut().zip(sources) {
            *slot = self.source(operand)?;
        }
        Some(Operation::Compute { function, d: register(d)?, sources: slots, flops, flush, saturate })
    }

    fn moved(&mut self, kind: &str, operands: &[Operand]) -> Option<Operation> {
        let [d, a] = operands else { return None };
        if kind == "pred" {
            let a = self.predicate(a)?;
            return Some(Operation::Logic { d: register(d)?, a, b: a, join: Join::And });
        }
        let bits = width(kind)?;
        match (d, a) {
            (Operand::Vector(parts), _) => {
                let parts: Vec<Option<usize>> = parts.iter().map(sink).collect::<Option<_>>()?;
                let bits = bits / u32::try_from(parts.len()).ok()?;
                Some(Operation::Unpack { parts, a: self.source(a)?, bits })
            }
            (_, Operand::Vector(parts)) => {
                let parts: Vec<usize> = parts.iter().map(|part| self.source(part)).collect::<Option<_>>()?;
                let bits = bits / u32::try_from(parts.len()).ok()?;
                Some(Operation::Pack { d: register(d)?, parts, bits })
            }
            (_, Operand::Name(name)) if name.contains("clock") || name.starts_with("%globaltimer") => {
                let (shift, bits) = match name.as_str() {
                    "%clock64" | "%globaltimer" => (0, 64),
                    "%clock" | "%globaltimer_lo" => (0, 32),
                    "%clock_hi" | "%globaltimer_hi" => (32, 32),
                    _ => return None,
                };
                Some(Operation::Clock { d: register(d)?, shift, bits })
            }
            _ => self.compute(&["mov", kind], operands),
        }
    }

    /// `cvta.global.u64` to a generic address, `cvta.to.global.u64` back.
    fn address_space(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let (to, space) = match *words {
            ["to", space, "u64"] => (true, space),
            [space, "u64"] => (false, space),
            _ => return None,
        };
        let window = match space {
            "global" | "const" => 0,
            "shared" | "shared::cta" => SHARED_WINDOW,
            "local" => LOCAL_WINDOW,
            "param" => PARAM_WINDOW,
            _ => return None,
        };
        let [d, a] = operands else { return None };
        let window = self.constant(if to { window.wrapping_neg() } else { window });
        let function = integer::function(&["add", "u64"])?;
        let sources = [self.source(a)?, window, 0, 0];
        Some(Operation::Compute {
            function,
            d: register(d)?,
            sources,
            flops: 0,
            flush: false,
            saturate: false,
        })
    }

    /// The state space, the elements of a vector and their type, from the words of a load or store.
    fn access(words: &[&str]) -> Option<(Access, usize)> {
        let (&kind, words) = words.split_last()?;
        let mut access = Access {
            space: Space::Generic,
            bytes: width(kind)? as usize / 8,
            signed: kind.starts_with('s'),
            register: 64,
            cached: !words.iter().any(|word| PAST_L1.contains(word)),
        };
        let mut count = 1;
        for word in words {
            match *word {
                "global" => access.space = Space::Global,
                "const" => access.space = Space::Const,
                "shared" | "shared::cta" => access.space = Space::Shared,
                "local" => access.space = Space::Local,
                "param" | "param::entry" => access.space = Space::Param,
                "v2" => count = 2,
                "v4" => count = 4,
                "v8" => count = 8,
                word if HINTS.contains(&word) => {}
                word if word.starts_with("L1::") || word.starts_with("L2::") => {}
                _ => return None,
            }
        }
        (access.bytes > 0 && access.bytes <= 8 && access.bytes * count <= 32).then_some((access, count))
    }

    fn load(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let (mut access, count) = Self::access(words)?;
        let [into, address] = operands else { return None };
        let into: Vec<Option<usize>> = match into {
            Operand::Vector(parts) => parts.iter().map(sink).collect::<Option<_>>()?,
            one => vec![Some(register(one)?)],
        };
        if into.len() != count {
            return None;
        }
        if let Some(first) = into.iter().flatten().next() {
            access.register = self.code.registers[*first].bits;
        }
        Some(Operation::Load { access, into, address: self.address(address)? })
    }

    fn store(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let (access, count) = Self::access(words)?;
        let [address, from] = operands else { return None };
        let from: Vec<usize> = match from {
            Operand::Vector(parts) => parts.iter().map(|part| self.source(part)).collect::<Option<_>>()?,
            one => vec![self.source(one)?],
        };
        let address = self.address(address)?;
        (from.len() == count).then_some(Operation::Store { access, from, address })
    }

    fn atomic(&mut self, words: &[&str], operands: &[Operand], returns: bool) -> Option<Operation> {
        let at = words.iter().position(|word| ATOMICS.contains(word))?;
        let (before, name, kind) = (&words[..at], words[at], *words.get(at + 1)?);
        let (access, _) = Self::access(&[before, &[kind]].concat())?;
        let apply = atomic_function(name, kind)?;
        let (d, rest) = if returns { (sink(operands.first()?)?, &operands[1..]) } else { (None, operands) };
        let (address, b, c) = match rest {
            [address, b] => (address, b, b),
            [address, b, c] if name == "cas" => (address, b, c),
            _ => return None,
        };
        let (address, b, c) = (self.address(address)?, self.source(b)?, self.source(c)?);
        Some(Operation::Atomic { atomic: Atomic { access, apply }, d, address, b, c })
    }

    fn convert(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let conversion = Conversion::named(words)?;
        let (d, a, b) = match (conversion, operands) {
            (Conversion::Two(pack), [d, a, b]) if !pack.packed => (d, a, b),
            (Conversion::Two(pack), [d, a]) if pack.packed => (d, a, a),
            (Conversion::One(_), [d, a]) => (d, a, a),
            _ => return None,
        };
        let d = register(d)?;
        let (a, b) = (self.source(a)?, self.source(b)?);
        Some(Operation::Convert { conversion, d, a, b, register: self.code.registers[d].bits })
    }

    fn compare(&mut self, operator: &str, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let (&kind, words) = words.split_last()?;
        let flush = words.contains(&"ftz");
        let joins: Vec<Join> =
            words.iter().filter(|&&word| word != "ftz").map(|&word| join(word)).collect::<Option<_>>()?;
        let comparison = real::comparison(operator, kind)?;
        let (d, a, b, by) = match (operands, joins.as_slice()) {
            ([d, a, b], []) => (d, a, b, None),
            ([d, a, b, by], &[join]) => (d, a, b, Some((join, self.predicate(by)?))),
            _ => return None,
        };
        let (d, inverse) = match d {
            Operand::Pair(d, inverse) => (sink(d)?, sink(inverse)?),
            d => (sink(d)?, None),
        };
        let (a, b) = (self.source(a)?, self.source(b)?);
        Some(Operation::Compare { comparison, d, inverse, a, b, join: by, flush: flush && kind == "f32" })
    }

    fn set(&mut self, operator: &str, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let [to, kind] = words else { return None };
        let [d, a, b] = operands else { return None };
        let truth = match *to {
            "u32" | "s32" => 0xffff_ffff,
            "f32" => 0x3f80_0000,
            _ => return None,
        };
        let comparison = real::comparison(operator, kind)?;
        let (a, b) = (self.source(a)?, self.source(b)?);
        Some(Operation::Set { comparison, d: register(d)?, a, b, truth })
    }

    fn logic(&mut self, name: &str, operands: &[Operand]) -> Option<Operation> {
        if name == "not" {
            let [d, a] = operands else { return None };
            let (register_a, negated) = self.predicate(a)?;
            let a = (register_a, !negated);
            return Some(Operation::Logic { d: register(d)?, a, b: a, join: Join::And });
        }
        let [d, a, b] = operands else { return None };
        let (a, b) = (self.predicate(a)?, self.predicate(b)?);
        Some(Operation::Logic { d: register(d)?, a, b, join: join(name)? })
    }

    fn shuffle(&mut self, mode: &str, operands: &[Operand]) -> Option<Operation> {
        let mode = match mode {
            "up" => ShuffleMode::Up,
            "down" => ShuffleMode::Down,
            "bfly" => ShuffleMode::Butterfly,
            "idx" => ShuffleMode::Index,
            _ => return None,
        };
        let [d, a, b, c, members] = operands else { return None };
        let (d, p) = match d {
            Operand::Pair(d, p) => (register(d)?, sink(p)?),
            d => (register(d)?, None),
        };
        let (a, b, c, members) = (self.source(a)?, self.source(b)?, self.source(c)?, self.source(members)?);
        Some(Operation::Shuffle { mode, d, p, a, b, c, members })
    }

    fn barrier(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let known = words.iter().all(|word| matches!(*word, "sync" | "cta" | "aligned"));
        let (id, threads) = match operands {
            [id] => (id, None),
            [id, threads] => (id, Some(self.source(threads)?)),
            _ => return None,
        };
        let id = self.source(id)?;
        (known && words.contains(&"sync")).then_some(Operation::Barrier { id, threads })
    }

    fn mma(&mut self, words: &[&str], operands: &[Operand]) -> Option<Operation> {
        let [d, a, b, c, scales @ ..] = operands else { return None };
        let (slots, selectors) = match scales {
            [] => ([0, 0], Vec::new()),
            [a, select_a, b, select_b] => (
                [self.source(a)?, self.source(b)?],
                [select_a, select_b]
                    .into_iter()
                    .map(|select| self.selector(select))
                    .collect::<Option<_>>()?,
            ),
            _ => return None,
        };
        let mma = Mma::named(words, &selectors)?;
        let fragments = [registers(d)?, self.fragment(a)?, self.fragment(b)?, self.fragment(c)?];
        let [words_d, words_a, words_b] = mma.words();
        let lengths = fragments.each_ref().map(Vec::len);
        let [d, a, b, c] = fragments;
        (lengths == [words_d, words_a, words_b, words_d]).then_some(Operation::Mma {
            mma,
            d,
            a,
            b,
            c,
            scales: slots,
        })
    }

    pub(crate) fn fragment(&mut self, operand: &Operand) -> Option<Vec<usize>> {
        match operand {
            Operand::Vector(parts) => parts.iter().map(|part| self.source(part)).collect(),
            one => Some(vec![self.source(one)?]),
        }
    }

    /// The byte and the thread of `{0, 0}`: constants, or registers that hold one by a `mov` of a constant before.
    fn selector(&self, operand: &Operand) -> Option<[u64; 2]> {
        let Operand::Vector(parts) = operand else { return None };
        let [byte, thread] = parts.as_slice() else { return None };
        Some([self.known(byte)?, self.known(thread)?])
    }

    /// The value of an operand that is the same whenever it is read.
    fn known(&self, operand: &Operand) -> Option<u64> {
        match operand {
            Operand::Immediate(value) => Some(*value),
            Operand::Register(_) => {
                let mut written = self
                    .code
                    .statements
                    .iter()
                    .filter(|statement| statement.operands.first() == Some(operand));
                match (written.next()?, written.next()) {
                    (statement, None) if statement.opcode[0] == "mov" => {
                        self.known(statement.operands.get(1)?)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    pub(crate) fn predicate(&mut self, operand: &Operand) -> Option<Predicate> {
        match operand {
            Operand::Register(register) => Some((*register, false)),
            Operand::Not(inner) => self.predicate(inner).map(|(register, negated)| (register, !negated)),
            // The predicate past the last is true.
            Operand::Immediate(value) => Some((self.code.registers.len(), *value == 0)),
            _ => None,
        }
    }

    pub(crate) fn address(&mut self, operand: &Operand) -> Option<Address> {
        let Operand::Address { base, offset, more } = operand else { return None };
        if !more.is_empty() {
            return None;
        }
        match base.as_ref() {
            Operand::Register(register) => Some(Address { base: Some(*register), offset: *offset }),
            other => Some(Address::fixed(self.value(other)?.cast_signed().wrapping_add(*offset))),
        }
    }

    /// The value of a constant or of a variable's address.
    fn value(&self, operand: &Operand) -> Option<u64> {
        match operand {
            Operand::Immediate(value) => Some(*value),
            Operand::Name(name) => {
                let variable = self.code.variables.get(name)?;
                let window = if variable.space == Space::Const { STATIC_WINDOW } else { 0 };
                Some(window + variable.offset)
            }
            Operand::Address { base, offset, .. } => Some(self.value(base)?.wrapping_add_signed(*offset)),
            _ => None,
        }
    }

    /// The slot of a source.
    pub(crate) fn source(&mut self, operand: &Operand) -> Option<usize> {
        match operand {
            Operand::Register(register) => Some(*register),
            Operand::Vector(parts) if parts.len() == 1 => self.source(&parts[0]),
            Operand::Name(name) => match special::NAMES.iter().position(|special| special == name) {
                Some(which) => Some(self.code.registers.len() + which),
                None => self.value(operand).map(|value| self.constant(value)),
            },
            _ => self.value(operand).map(|value| self.constant(value)),
        }
    }

    /// The slot of a source, of which a constant is cut to so many bits.
    fn narrow(&mut self, operand: &Operand, bits: u32) -> Option<usize> {
        match operand {
            Operand::Immediate(value) => Some(self.constant(value & (u64::MAX >> (64 - bits)))),
            _ => self.source(operand),
        }
    }

    fn constant(&mut self, value: u64) -> usize {
        let next = self.code.registers.len() + special::NAMES.len() + self.constants.len();
        let slot = *self.slots.entry(value).or_insert(next);
        if slot == next {
            self.constants.push(value);
        }
        slot
    }
}

pub(crate) fn register(operand: &Operand) -> Option<usize> {
    match operand {
        Operand::Register(register) => Some(*register),
        Operand::Vector(parts) if parts.len() == 1 => register(&parts[0]),
        _ => None,
    }
}

pub(crate) fn registers(operand: &Operand) -> Option<Vec<usize>> {
    match operand {
        Operand::Vector(parts) => parts.iter().map(register).collect(),
        one => Some(vec![register(one)?]),
    }
}

/// A destination, or `_` for none.
pub(crate) fn sink(operand: &Operand) -> Option<Option<usize>> {
    match operand {
        Operand::Name(name) if name == "_" => Some(None),
        other => register(other).map(Some),
    }
}

fn join(name: &str) -> Option<Join> {
    Some(match name {
        "and" => Join::And,
        "or" => Join::Or,
        "xor" => Join::Xor,
        _ => return None,
    })
}

const ATOMICS: [&str; 10] = ["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"];

fn atomic_function(name: &str, kind: &str) -> Option<fn(u64, u64, u64) -> u64> {
    Some(match (name, kind) {
        ("add", "u32" | "s32" | "u64" | "s64") => |a, b, _| a.wrapping_add(b),
        ("add", "f32") => {
            |a, b, _| u64::from((f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits())
        }
        ("add", "f64") => |a, b, _| (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
        ("min", "u32" | "u64") => |a, b, _| a.min(b),
        ("max", "u32" | "u64") => |a, b, _| a.max(b),
        ("min", "s32") => |a, b, _| u64::from((a as i32).min(b as i32).cast_unsigned()),
        ("max", "s32") => |a, b, _| u64::from((a as i32).max(b as i32).cast_unsigned()),
        ("and", "b32" | "b64") => |a, b, _| a & b,
        ("or", "b32" | "b64") => |a, b, _| a | b,
        ("xor", "b32" | "b64") => |a, b, _| a ^ b,
        ("exch", "b32" | "b64") => |_, b, _| b,
        ("cas", "b32" | "b64" | "b16") => |a, b, c| if a == b { c } else { a },
        ("inc", "u32") => |a, b, _| if a >= b { 0 } else { a + 1 },
        ("dec", "u32") => |a, b, _| if a == 0 || a > b { b } else { a - 1 },
        _ => return None,
    })
}
