//! NumPy's .npy: one array. Magic, version, a header's length, a Python dictionary in ASCII, the data.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Tensor, TensorError};
use answer::modelfile;
use roofline::workload::block::Block;

/// Most dimensions of an array.
const MAX_DIMENSIONS: usize = 8;
/// Longest header; those of plain arrays have 118 bytes.
const MAX_HEADER: usize = 64 << 10;

/// Whether a path is that of an array by its name or its first bytes.
pub fn is_likely(path: &Path) -> bool {
    let mut magic = [0; 6];
    let mut starts = || {
        let (file, _) = modelfile::open(path).ok()?;
        file.read_exact_at(&mut magic, 0).ok()?;
        Some(magic == *b"\x93NUMPY")
    };
    path.extension().is_some_and(|extension| extension == "npy") || starts() == Some(true)
}

/// The array of the file, named after the file.
pub fn read(file: &File, size: u64, path: &Path) -> Result<Vec<Tensor>, TensorError> {
    let mut start = [0; 12];
    let available = usize::try_from(size).unwrap_or(12).min(12);
    file.read_exact_at(&mut start[..available], 0)?;
    if !start.starts_with(b"\x93NUMPY") {
        return Err(wrong("it does not start with the magic number of .npy"));
    }
    let (at, length) = match start[6] {
        1 => (10, usize::from(u16::from_le_bytes([start[8], start[9]]))),
        2 | 3 => {
            let length = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
            (12, usize::try_from(length).unwrap_or(usize::MAX))
        }
        other => return Err(wrong(format!("version {other} is not known"))),
    };
    if length > MAX_HEADER || at + length as u64 > size {
        return Err(wrong(format!("a header of {length} bytes in a file of {size}")));
    }
    let mut text = vec![0; length];
    file.read_exact_at(&mut text, at)?;
    let text = String::from_utf8_lossy(&text);
    let block = match value(&text, "descr")?.trim_matches(['\'', '"']) {
        "<f4" => Block::F32,
        "<f2" => Block::F16,
        "<f8" => Block::F64,
        other => {
            let shown: String = other.chars().take(20).collect();
            return Err(wrong(format!("numbers stored as {shown:?}; expected <f2, <f4 or <f8")));
        }
    };
    if value(&text, "fortran_order")? != "False" {
        return Err(wrong("columns are stored first; save it with numpy.ascontiguousarray"));
    }
    let shape = shape(&text)?;
    let elements = shape.iter().try_fold(1u64, |product, &length| product.checked_mul(length));
    let bytes = elements
        .and_then(|elements| block.size(1, elements))
        .ok_or_else(|| wrong("its shape is larger than any file"))?;
    let offset = at + length as u64;
    if offset.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(wrong(format!(
            "it is cut: its shape takes {bytes} bytes behind a header of {offset}, of {size}"
        )));
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(vec![Tensor { name, block, shape, file: 0, offset, bytes }])
}

fn wrong(what: impl Into<String>) -> TensorError {
    TensorError::Npy(what.into())
}

/// What follows `'key':` up to the next comma or the end.
fn value<'a>(text: &'a str, key: &str) -> Result<&'a str, TensorError> {
    let found = text.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let found = found.ok_or_else(|| wrong(format!("the header has no {key}")))?;
    Ok(found.split([',', '}']).next().unwrap_or("").trim())
}

fn shape(text: &str) -> Result<Vec<u64>, TensorError> {
    let no_tuple = || wrong("the shape is no tuple of sizes");
    let (_, rest) = text.split_once("'shape':").ok_or_else(no_tuple)?;
    let (sizes, _) =
        rest.trim_start().strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or_else(no_tuple)?;
    let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape: Vec<u64> =
        sizes.take(MAX_DIMENSIONS + 1).map(str::parse).collect::<Result<_, _>>().map_err(|_| no_tuple())?;
    if shape.len() > MAX_DIMENSIONS { Err(no_tuple()) } else { Ok(shape) }
}
