//! Kernels of tiles with one thing wrong: a bit of a descriptor, a place in tensor memory, a fence or a wait that is not
//! there. None of them may come out right.

use ptx::Module;

use crate::device::{Random, text};
use crate::tiles::{Outcome, TILES, Tile};

/// What is wrong, and the text with it.
struct Mutant {
    what: String,
    text: String,
}

/// Lines of the text that have all of `marks`, as they stand.
fn lines<'a>(text: &'a str, marks: &[&str]) -> Vec<(usize, &'a str)> {
    text.lines().enumerate().filter(|(_, line)| marks.iter().all(|mark| line.contains(mark))).collect()
}

/// The text with one of the lines that have all of `marks` changed.
fn changed(text: &str, marks: &[&str], nth: usize, change: impl Fn(&str) -> String) -> String {
    let found = lines(text, marks);
    let &(at, _) = found.get(nth).unwrap_or_else(|| panic!("no line {nth} with {marks:?}"));
    text.lines()
        .enumerate()
        .map(|(number, line)| if number == at { change(line) } else { line.to_owned() } + "\n")
        .collect()
}

struct Mutants<'a> {
    text: &'a str,
    all: Vec<Mutant>,
}

impl Mutants<'_> {
    fn add(&mut self, what: impl Into<String>, text: String) {
        let what = what.into();
        assert_ne!(text, self.text, "{what}: nothing is changed");
        self.all.push(Mutant { what, text });
    }

    fn replace(&mut self, what: &str, from: &str, to: &str) {
        self.add(what, self.text.replace(from, to));
    }

    fn line(&mut self, what: &str, marks: &[&str], nth: usize, from: &str, to: &str) {
        self.add(what, changed(self.text, marks, nth, |line| line.replace(from, to)));
    }

    /// Without the nth instruction of that name.
    fn without(&mut self, name: &str, nth: usize) {
        self.add(format!("no {name} ({nth})"), changed(self.text, &[name], nth, |_| String::new()));
    }

    /// Each of the bits of constants in turn.
    fn bits(&mut self, what: &str, constants: &[i64], bits: impl Iterator<Item = u32>) {
        for bit in bits {
            let flipped = constants.iter().fold(self.text.to_owned(), |text, &constant| {
                text.replace(&format!(", {constant};"), &format!(", <{};", constant ^ 1 << bit))
            });
            self.add(format!("{what}, bit {bit}"), flipped.replace(", <", ", "));
        }
    }
}

/// K-major, rows of 128 bytes swizzled by as many, eight of them 1024 bytes apart.
const WARPGROUP: i64 = 0x4000_0040_0001_0000;
/// K-major, rows of 64 bytes swizzled by as many, eight of them 512 bytes apart; and 32 bytes further along the rows.
const TENSOR: i64 = 0x8000_4020_0001_0000_u64.cast_signed();
const TENSOR_NEXT: i64 = TENSOR + 2;

fn of_warpgroup(tile: &Tile, text: &str) -> Vec<Mutant> {
    let mut mutants = Mutants { text, all: Vec::new() };
    // The leading offset, bits 16 to 29, is not used by swizzled K-major matrices. A base offset of four rows, bit 51,
    // has the same two halves of the depth change places in A and in B.
    mutants.bits("matrix descriptor", &[WARPGROUP], (0..16).chain(30..64).filter(|&bit| bit != 51));
    let (from, changes): (&str, &[(&str, &str)]) = match tile.entry {
        "wgmma_f16" | "wgmma_bf16" => (
            ", 1, 1, 1, 0, 0;",
            &[
                ("nothing is added", ", 0, 1, 1, 0, 0;"),
                ("A negated", ", 1, -1, 1, 0, 0;"),
                ("B negated", ", 1, 1, -1, 0, 0;"),
                ("A transposed", ", 1, 1, 1, 1, 0;"),
                ("B transposed", ", 1, 1, 1, 0, 1;"),
            ],
        ),
        "wgmma_f8" => (
            ", 1, 1, 1;",
            &[("nothing is added", ", 0, 1, 1;"), ("A negated", ", 1, -1, 1;"), ("B negated", ", 1, 1, -1;")],
        ),
        _ => (", 1;", &[("nothing is added", ", 0;")]),
    };
    for (what, to) in changes {
        let of_mma =
            |line: &str| if line.contains("mma_async") { line.replace(from, to) } else { line.to_owned() };
        let changed = text.lines().map(|line| of_mma(line) + "\n").collect();
        mutants.add(*what, changed);
    }
    let types: &[(&str, &str)] = match tile.entry {
        "wgmma_f16" => &[(".f16.f16 ", ".bf16.bf16 "), (".f16.f16 ", ".f16.bf16 ")],
        "wgmma_bf16" => &[(".bf16.bf16 ", ".f16.f16 ")],
        "wgmma_f8" => &[(".e4m3.e4m3 ", ".e5m2.e4m3 "), (".e4m3.e4m3 ", ".e4m3.e5m2 ")],
        _ => &[(".s8.s8 ", ".u8.s8 "), (".s8.s8 ", ".s8.u8 ")],
    };
    for (from, to) in types {
        mutants.replace(&format!("types{to}"), from, to);
    }
    mutants.replace("248 columns", "m64n256", "m64n248");
    mutants.without("fence.proxy.async", 0);
    mutants.line("fence of another space", &["fence.proxy.async"], 0, "shared::cta", "global");
    mutants.without("bar.sync", 0);
    mutants.without("wgmma.fence", 0);
    mutants.without("wgmma.fence", 1);
    mutants.without("wgmma.commit_group", 1);
    mutants.without("wgmma.wait_group", 1);
    mutants.line("one group is not waited for", &["wgmma.wait_group"], 1, " 0;", " 1;");
    // In the loop, what is wrong with B alone is added and taken away again.
    mutants.line("the next 16 bytes", &["add.s64", ", 2;"], 4, ", 2;", ", 1;");
    mutants.line("the next 48 bytes", &["add.s64", ", 2;"], 2, ", 2;", ", 3;");
    mutants.line("stored with another swizzle", &["and.b32", ", 7;"], 0, ", 7;", ", 3;");
    unaligned(&mut mutants);
    mutants.all
}

/// A tile that begins 16 bytes into the pattern of the swizzle.
fn unaligned(mutants: &mut Mutants<'_>) {
    let moved = changed(mutants.text, &[".shared .align 1024", "plus"], 0, |line| {
        format!(".shared .align 16 .b8 before[16];\n{}", line.replace(".align 1024", ".align 16"))
    });
    mutants.add("a tile that is not aligned", moved);
}

fn of_tensor(tile: &Tile, text: &str) -> Vec<Mutant> {
    let mut mutants = Mutants { text, all: Vec::new() };
    let is_scaled = tile.entry == "tcgen05_nvf4";
    // The leading offset is not used here either, nor is a base offset of four rows, where the swizzle repeats itself.
    // Without factors the two halves of the depth may change places, by the address or by a base offset of two rows.
    let bits = (0..16).chain(30..64).filter(|&bit| bit != 51 && (is_scaled || (bit != 1 && bit != 50)));
    mutants.bits("matrix descriptor", &[TENSOR, TENSOR_NEXT], bits);
    mutants.bits("the other half's descriptor", &[TENSOR_NEXT], 0..3);
    let instruction = match tile.entry {
        "tcgen05_f16" | "tcgen05_f8" => 0x0840_0010,
        "tcgen05_bf16" => 0x0840_0490,
        "tcgen05_i8" => 0x0840_04a0,
        _ => 0x0840_0480,
    };
    // No sum here is so large that it would saturate.
    let bits = (0..32).filter(|&bit| bit != 3 || tile.entry != "tcgen05_i8");
    mutants.bits("instruction descriptor", &[instruction], bits);
    let kinds: &[(&str, &str)] = match tile.entry {
        "tcgen05_f16" | "tcgen05_bf16" => &[("kind::f16", "kind::tf32"), ("kind::f16", "kind::f8f6f4")],
        "tcgen05_f8" => &[("kind::f8f6f4", "kind::f16"), ("kind::f8f6f4", "kind::i8")],
        "tcgen05_i8" => &[("kind::i8", "kind::f8f6f4")],
        _ => &[
            (".block16", ".block32"),
            (".block16", ""),
            ("kind::mxf4nvf4", "kind::mxf4"),
            ("kind::mxf4nvf4", "kind::mxf8f6f4"),
        ],
    };
    for (from, to) in kinds {
        let changed = text
            .lines()
            .map(|line| if line.contains("tcgen05.mma") { line.replace(from, to) } else { line.to_owned() } + "\n")
            .collect();
        mutants.add(format!("{from} is {to}"), changed);
    }
    mutants.line("an accumulator from nothing", &["tcgen05.mma"], 0, "setp.ne", "setp.eq");
    mutants.line("nothing is added", &["tcgen05.mma"], 1, "setp.ne", "setp.eq");
    // Order.
    mutants.without("fence.proxy.async", 0);
    mutants.line("fence of another space", &["fence.proxy.async"], 0, "shared::cta", "global");
    mutants.without("fence.mbarrier_init", 0);
    mutants.without("mbarrier.init.", 0);
    mutants.without("tcgen05.commit", 0);
    mutants.without("tcgen05.wait::ld", 0);
    mutants.without("tcgen05.alloc", 0);
    mutants.without("tcgen05.dealloc", 0);
    mutants.line("the other phase", &["mbarrier.try_wait"], 0, "], 0;", "], 1;");
    mutants.line("two arrivals", &["mbarrier.init."], 0, "], 1;", "], 2;");
    mutants.line("no arrival", &["mbarrier.init."], 0, "], 1;", "], 0;");
    mutants.line("elected of one lane", &["elect.sync"], 0, "0xffffffff", "0x1");
    mutants.add(
        "no permit to allocate",
        changed(text, &["tcgen05.alloc"], 0, |line| {
            format!("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n{line}")
        }),
    );
    // The first of each is about the allocation alone, of which nothing is read but through shared memory.
    let barriers = lines(text, &["bar.sync"]).len();
    for nth in 0..barriers {
        mutants.without("bar.sync", nth);
    }
    for name in ["tcgen05.fence::before", "tcgen05.fence::after"] {
        for nth in 1..lines(text, &[name]).len() {
            mutants.without(name, nth);
        }
    }
    // Places in tensor memory.
    let columns = if is_scaled { "512;" } else { "256;" };
    mutants.line("too few columns", &["tcgen05.alloc"], 0, columns, "128;");
    mutants.line("no power of two", &["tcgen05.alloc"], 0, columns, "48;");
    mutants.line("half is freed", &["tcgen05.dealloc"], 0, columns, "64;");
    mutants.line("another warp's lanes", &["and.b32", "65011712"], 0, "65011712", "0");
    if is_scaled {
        mutants.without("tcgen05.wait::st", 0);
        for (column, others) in [("256", ["257", "264"]), ("272", ["273", "280"]), ("260", ["256", "261"])] {
            for other in others {
                let marks = ["add.s32", &format!(", {column};")];
                mutants.line(&format!("factors at {other}, not {column}"), &marks, 0, column, other);
            }
        }
        for nth in 0..2 {
            for other in ["272", "284"] {
                let what = format!("factors at {other}, not 280 ({nth})");
                mutants.line(&what, &["add.s32", ", 280;"], nth, "280", other);
            }
        }
    }
    mutants.line("stored with another swizzle", &["and.b32", ", 3;"], 0, ", 3;", ", 1;");
    unaligned(&mut mutants);
    mutants.all
}

#[test]
fn no_kernel_of_tiles_with_a_fault_comes_out_right() {
    let mut survivors = Vec::new();
    let (mut faults, mut wrong) = (0, 0);
    let mut random = Random(22);
    // The texts for 11.0 are those for 10.0 but for their first lines.
    for tile in TILES.iter().filter(|tile| !tile.module.ends_with("sm110")) {
        let text = text(tile.module);
        let inputs = tile.inputs(&mut random);
        let mutants =
            if tile.entry.starts_with("wgmma") { of_warpgroup(tile, &text) } else { of_tensor(tile, &text) };
        for Mutant { what, text } in mutants {
            let module = Module::parse(&text).unwrap_or_else(|error| panic!("{what}: {error}"));
            // Some things show in the loop alone, and some only where there is none.
            let outcomes = [1, 0].map(|iterations| tile.run(&module, &inputs, 1, iterations));
            match outcomes.into_iter().find(|outcome| !matches!(outcome, Outcome::Right(_))) {
                Some(Outcome::Fault(_)) => faults += 1,
                Some(_) => wrong += 1,
                None => survivors.push(format!("{}: {what}", tile.module)),
            }
        }
    }
    println!("mutants: {faults} stopped, {wrong} with wrong results, {} not noticed", survivors.len());
    assert!(survivors.is_empty(), "{survivors:#?}");
    assert!(faults > 0 && wrong > 0);
}
