//! How the CPU kernels of llama.cpp were built, by their file.
//!
//! For each kind of instruction it has a function that the compiler made a constant of: `int ggml_cpu_has_avx2(void)` returns 1
//! where the kernels use AVX2. The code of these functions is read from the symbols of the file (ELF, 64 bits), and not run:
//!
//! ```text
//! x86-64  [f3 0f 1e fa]  endbr64           aarch64  52800020  mov w0, #1
//!         [55 48 89 e5]  push, mov rbp              52800000  mov w0, #0
//!         b8 01 00 00 00 mov eax, 1                 d65f03c0  ret
//!         31 c0          xor eax, eax
//!         [5d] c3        ret
//! ```
//! A function that asks the machine when it runs is not of this form, and says nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Names of `system_info` and of the functions, which are written in small letters there.
const INSTRUCTIONS: [&str; 6] = ["AVX2", "AVX_VNNI", "AVX512_VNNI", "AMX_INT8", "DOTPROD", "MATMUL_INT8"];
const PREFIX: &[u8] = b"ggml_cpu_has_";
/// Larger tables of symbols, and more sections, are not read.
const MOST_BYTES: u64 = 64 << 20;
const MOST_SECTIONS: u16 = 512;
const X86_64: u16 = 62;
const AARCH64: u16 = 183;
const SYMBOLS: [u32; 2] = [2, 11];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// Names of instructions that the kernels use, or may use.
    pub instructions: Vec<String>,
    /// Whether the code shows a compiler that did not optimise; `None` where it shows neither.
    pub is_unoptimised: Option<bool>,
}

impl Build {
    /// `None` if the file cannot be read, is of another kind, or holds none of the functions.
    pub fn read(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        // Reading a pipe or a device could wait forever.
        file.metadata().ok()?.is_file().then_some(())?;
        Self::of(&functions(&file)?)
    }

    fn of(functions: &BTreeMap<String, Constant>) -> Option<Self> {
        if functions.is_empty() {
            return None;
        }
        let is_used =
            |name: &&&str| functions.get(&name.to_lowercase()).is_none_or(|constant| constant.value != 0);
        let plain = functions.values().filter_map(|constant| constant.is_plain);
        Some(Self {
            instructions: INSTRUCTIONS.iter().filter(is_used).map(|name| (*name).to_owned()).collect(),
            is_unoptimised: plain.reduce(|a, b| a && b),
        })
    }
}

/// What a function returns, and whether the compiler wrote it down without optimisation, where the code shows that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Constant {
    value: u32,
    is_plain: Option<bool>,
}

impl Constant {
    fn decode(machine: u16, code: &[u8]) -> Option<Self> {
        match machine {
            X86_64 => Self::decode_x86(code),
            AARCH64 => {
                let word =
                    |index: usize| Some(u32::from_le_bytes(code.get(index..index + 4)?.try_into().ok()?));
                let value = [0x5280_0000, 0x5280_0020].iter().position(|own| word(0) == Some(*own))?;
                (word(4) == Some(0xd65f_03c0))
                    .then_some(Self { value: u32::try_from(value).ok()?, is_plain: None })
            }
            _ => None,
        }
    }

    fn decode_x86(code: &[u8]) -> Option<Self> {
        let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
        let framed = code.strip_prefix(&[0x55, 0x48, 0x89, 0xe5]);
        let code = framed.unwrap_or(code);
        let (value, is_moved, rest) = match code {
            [0x31, 0xc0, rest @ ..] => (0, false, rest),
            [0xb8, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), true, rest),
            _ => return None,
        };
        let rest = rest.strip_prefix(&[0x5d]).unwrap_or(rest);
        // An optimiser clears a register by itself, and keeps no frame for that.
        let is_plain = (value == 0).then_some(is_moved && framed.is_some());
        (rest.first() == Some(&0xc3)).then_some(Self { value, is_plain })
    }
}

/// A section of the file: type, address, offset, size and the section that it refers to.
struct Section {
    kind: u32,
    address: u64,
    offset: u64,
    size: u64,
    link: usize,
}

/// The functions by the end of their names.
fn functions(file: &File) -> Option<BTreeMap<String, Constant>> {
    let header: [u8; 64] = bytes(file, 0, 64)?.try_into().ok()?;
    // 64 bits, little end first.
    (header[..6] == *b"\x7fELF\x02\x01").then_some(())?;
    let machine = u16_at(&header, 18)?;
    let count = u16_at(&header, 60).filter(|count| *count <= MOST_SECTIONS)?;
    let table = bytes(file, u64_at(&header, 40)?, u64::from(count) * 64)?;
    let section = |header: &[u8]| {
        Some(Section {
            kind: u32_at(header, 4)?,
            address: u64_at(header, 16)?,
            offset: u64_at(header, 24)?,
            size: u64_at(header, 32)?,
            link: usize::try_from(u32_at(header, 40)?).ok()?,
        })
    };
    let sections: Vec<Section> = table.chunks_exact(64).map(section).collect::<Option<_>>()?;
    let mut found = BTreeMap::new();
    for symbols in sections.iter().filter(|section| SYMBOLS.contains(&section.kind)) {
        let Some(names) = sections.get(symbols.link) else { continue };
        let (Some(table), Some(names)) =
            (bytes(file, symbols.offset, symbols.size), bytes(file, names.offset, names.size))
        else {
            continue;
        };
        for symbol in table.chunks_exact(24) {
            let name = u32_at(symbol, 0).and_then(|start| names.get(usize::try_from(start).ok()?..));
            let Some(name) = name.and_then(|name| name.split(|byte| *byte == 0).next()?.strip_prefix(PREFIX))
            else {
                continue;
            };
            let code = code_of(file, &sections, symbol).and_then(|code| Constant::decode(machine, &code));
            found.extend(code.map(|constant| (String::from_utf8_lossy(name).into_owned(), constant)));
        }
    }
    Some(found)
}

/// The first bytes of a function.
fn code_of(file: &File, sections: &[Section], symbol: &[u8]) -> Option<Vec<u8>> {
    const LONGEST: u64 = 32;
    let section = sections.get(usize::from(u16_at(symbol, 6)?))?;
    let start = u64_at(symbol, 8)?.checked_sub(section.address)?;
    let length = u64_at(symbol, 16)?.min(LONGEST).min(section.size.checked_sub(start)?);
    bytes(file, section.offset.checked_add(start)?, length)
}

fn bytes(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok().filter(|_| length <= MOST_BYTES)?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions of a library as a compiler makes them.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn compiled(options: &[&str]) -> Option<Option<Build>> {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("k.c"), dir.path().join("libggml-cpu.so"));
        let text = "int ggml_cpu_has_avx2(void) { return 1; }\nint ggml_cpu_has_avx512_vnni(void) { return 0; }\n\
                    int ggml_cpu_has_dotprod(void) { return 0; }\nextern int probe(void);\n\
                    int ggml_cpu_has_amx_int8(void) { return probe(); }\n";
        std::fs::write(&source, text).unwrap();
        let mut compiler = std::process::Command::new("cc");
        compiler.args(options).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        match compiler.status() {
            Ok(status) if status.success() => Some(Build::read(&library)),
            _ => {
                eprintln!("skipped: no C compiler here");
                None
            }
        }
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn a_compiled_library_tells_its_instructions_and_whether_it_was_optimised() {
        for (options, is_unoptimised) in
            [(["-O2", "-g0"], false), (["-O0", "-g0"], true), (["-O3", "-s"], false)]
        {
            let Some(build) = compiled(&options) else { return };
            let build = build.unwrap();
            // What is not told counts as used.
            assert_eq!(build.instructions, ["AVX2", "AVX_VNNI", "AMX_INT8", "MATMUL_INT8"], "{options:?}");
            if cfg!(target_arch = "x86_64") {
                assert_eq!(build.is_unoptimised, Some(is_unoptimised), "{options:?}");
            }
        }
    }

    #[test]
    fn code_of_both_machines_is_read() {
        let value =
            |machine: u16, code: &[u8]| Constant::decode(machine, code).map(|constant| constant.value);
        assert_eq!(value(X86_64, &[0x31, 0xc0, 0xc3]), Some(0));
        assert_eq!(value(X86_64, &[0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 1, 0, 0, 0, 0xc3]), Some(1));
        assert_eq!(value(X86_64, &[0xe8, 1, 2, 3, 4, 0xc3]), None);
        assert_eq!(value(AARCH64, &[0x20, 0, 0x80, 0x52, 0xc0, 3, 0x5f, 0xd6]), Some(1));
        assert_eq!(value(AARCH64, &[0, 0, 0x80, 0x52, 0xc0, 3, 0x5f, 0xd6]), Some(0));
        assert_eq!(value(AARCH64, &[0, 0, 0x80, 0x52]), None);
        let framed = Constant::decode(X86_64, &[0x55, 0x48, 0x89, 0xe5, 0xb8, 0, 0, 0, 0, 0x5d, 0xc3]);
        assert_eq!(framed.and_then(|constant| constant.is_plain), Some(true));
    }

    #[test]
    fn files_that_are_none_and_broken_ones_tell_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Build::read(dir.path()), None);
        assert_eq!(Build::read(Path::new("/proc/self/exe")), None, "this program has no such kernels");
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let path = dir.path().join("broken");
        let mut random = 7_u64;
        for _ in 0..200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut bytes = whole[..4096.min(whole.len())].to_vec();
            let at = usize::try_from(random >> 40).unwrap() % 64;
            bytes[at] ^= u8::try_from(random >> 56).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(Build::read(&path), None);
        }
    }
}
