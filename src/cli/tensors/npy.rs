//! NumPy's .npy: one array. Magic, version, a header's length, a Python dictionary in ASCII, the data.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{MAX_DIMENSIONS, Stored, Tensor, TensorError, bytes_of, header};
use crate::precision::WeightFormat;

const KIND: &str = "npy";
/// Longest header; those of plain arrays have 118 bytes.
const MAX_HEADER: usize = 64 << 10;

/// The array of the file, named after the file.
pub fn read(file: &File, size: u64, path: &Path) -> Result<Vec<Tensor>, TensorError> {
    let mut start = [0; 12];
    let available = usize::try_from(size).unwrap_or(12).min(12);
    file.read_exact_at(&mut start[..available], 0)?;
    let (at, length) = match start[6] {
        1 => (10, usize::from(u16::from_le_bytes([start[8], start[9]]))),
        2 | 3 => {
            let length = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
            (12, usize::try_from(length).unwrap_or(usize::MAX))
        }
        other => return Err(header(KIND, format!("version {other} is not known"))),
    };
    if length > MAX_HEADER || at + length as u64 > size {
        return Err(header(KIND, format!("a header of {length} bytes in a file of {size}")));
    }
    let mut text = vec![0; length];
    file.read_exact_at(&mut text, at)?;
    let text = String::from_utf8_lossy(&text);
    let stored = match value(&text, "descr")?.trim_matches(['\'', '"']) {
        "<f4" => Stored::As(WeightFormat::Fp32),
        "<f2" => Stored::As(WeightFormat::Fp16),
        "<f8" => Stored::Fp64,
        other => {
            let shown: String = other.chars().take(20).collect();
            return Err(header(KIND, format!("numbers stored as {shown:?}; expected <f2, <f4 or <f8")));
        }
    };
    if value(&text, "fortran_order")? != "False" {
        return Err(header(KIND, "columns are stored first; save it with numpy.ascontiguousarray"));
    }
    let shape = shape(&text)?;
    let bytes = stored
        .block()
        .and_then(|one| bytes_of(&shape, one))
        .ok_or_else(|| header(KIND, "its shape is larger than any file"))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(vec![Tensor { name, shape, stored, offset: at + length as u64, bytes }])
}

/// What follows `'key':` up to the next comma or the end.
fn value<'a>(text: &'a str, key: &str) -> Result<&'a str, TensorError> {
    let found = text.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let found = found.ok_or_else(|| header(KIND, format!("the header has no {key}")))?;
    Ok(found.split([',', '}']).next().unwrap_or("").trim())
}

fn shape(text: &str) -> Result<Vec<u64>, TensorError> {
    let wrong = || header(KIND, "the shape is no tuple of sizes");
    let (_, rest) = text.split_once("'shape':").ok_or_else(wrong)?;
    let (sizes, _) =
        rest.trim_start().strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or_else(wrong)?;
    let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape: Vec<u64> =
        sizes.take(MAX_DIMENSIONS + 1).map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
    if shape.len() > MAX_DIMENSIONS { Err(wrong()) } else { Ok(shape) }
}
