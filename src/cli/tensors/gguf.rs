//! GGUF, versions 2 and 3, little-endian: counts, metadata (passed over but for the alignment), tensor entries, the data.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use super::{MAX_DIMENSIONS, MAX_NAME, MAX_TENSORS, Stored, Tensor, TensorError, bytes_of, header, shown};
use crate::precision::WeightFormat;

const KIND: &str = "gguf";
/// Most bytes that are read before the data; the metadata of large vocabularies have some ten million.
const MAX_HEADER: u64 = 256 << 20;
/// Deepest nesting of arrays.
const MAX_DEPTH: u32 = 4;
/// Smallest metadata entry: the length of an empty name, a type, one byte.
const MIN_ENTRY: u64 = 13;
/// Smallest tensor entry: the length of an empty name, the number of dimensions, a type, an offset.
const MIN_TENSOR: u64 = 24;

/// The tensors of the header.
pub fn read(file: &File, size: u64) -> Result<Vec<Tensor>, TensorError> {
    let mut header = Header { input: BufReader::new(file), at: 0, size };
    header.skip(4)?;
    let version = header.u32()?;
    if !(2..=3).contains(&version) {
        return Err(super::header(KIND, format!("version {version}; 2 and 3 are read, little-endian")));
    }
    let (tensors, entries) = (header.u64()?, header.u64()?);
    if tensors > MAX_TENSORS as u64
        || tensors.saturating_mul(MIN_TENSOR).saturating_add(entries.saturating_mul(MIN_ENTRY)) > size
    {
        return Err(super::header(
            KIND,
            format!("{tensors} tensors and {entries} metadata entries in a file of {size} bytes"),
        ));
    }
    let mut alignment = 32;
    for _ in 0..entries {
        let name = header.name()?;
        let kind = header.u32()?;
        if name == "general.alignment" && kind == 4 {
            alignment = u64::from(header.u32()?);
        } else {
            header.skip_value(kind, 0)?;
        }
    }
    if !alignment.is_power_of_two() || alignment > 1 << 20 {
        return Err(super::header(KIND, format!("an alignment of {alignment}; expected a power of two")));
    }
    let mut found = (0..tensors).map(|_| header.tensor()).collect::<Result<Vec<_>, _>>()?;
    let data = header.at.next_multiple_of(alignment);
    for tensor in &mut found {
        tensor.offset = tensor.offset.saturating_add(data);
    }
    Ok(found)
}

struct Header<'a> {
    input: BufReader<&'a File>,
    at: u64,
    size: u64,
}

impl Header<'_> {
    /// Counts bytes before they are read.
    fn advance(&mut self, bytes: u64) -> Result<(), TensorError> {
        self.at = self.at.saturating_add(bytes);
        if self.at > self.size {
            return Err(header(KIND, "the header ends beyond the file; is it cut off?"));
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TensorError> {
        self.advance(N as u64)?;
        if self.at > MAX_HEADER {
            return Err(header(KIND, format!("a header of more than {} MiB", MAX_HEADER >> 20)));
        }
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, TensorError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, TensorError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn skip(&mut self, bytes: u64) -> Result<(), TensorError> {
        self.advance(bytes)?;
        if (self.input.buffer().len() as u64) >= bytes {
            self.input.consume(usize::try_from(bytes).unwrap_or(0));
        } else {
            self.input.seek(SeekFrom::Start(self.at))?;
        }
        Ok(())
    }

    fn name(&mut self) -> Result<String, TensorError> {
        let length = self.u64()?;
        if length > MAX_NAME as u64 {
            return Err(header(KIND, format!("a name of {length} bytes")));
        }
        self.advance(length)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.input.read_exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn skip_value(&mut self, kind: u32, depth: u32) -> Result<(), TensorError> {
        if let Some(size) = size_of(kind) {
            return self.skip(size);
        }
        match kind {
            8 => {
                let length = self.u64()?;
                self.skip(length)
            }
            9 if depth < MAX_DEPTH => {
                let (kind, count) = (self.u32()?, self.u64()?);
                if let Some(size) = size_of(kind) {
                    return self.skip(size.saturating_mul(count));
                }
                // Every other element has at least the eight bytes of a length.
                if count > self.size / 8 {
                    return Err(header(
                        KIND,
                        format!("an array of {count} in a file of {} bytes", self.size),
                    ));
                }
                (0..count).try_for_each(|_| self.skip_value(kind, depth + 1))
            }
            9 => Err(header(KIND, "arrays within arrays within arrays")),
            other => Err(header(KIND, format!("a metadata value of type {other}"))),
        }
    }

    fn tensor(&mut self) -> Result<Tensor, TensorError> {
        let name = self.name()?;
        let dimensions = self.u32()? as usize;
        if dimensions > MAX_DIMENSIONS {
            return Err(header(KIND, format!("tensor {} has {dimensions} dimensions", shown(&name))));
        }
        // The first size is that of a row.
        let mut shape = (0..dimensions).map(|_| self.u64()).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let stored = stored(self.u32()?);
        let offset = self.u64()?;
        let block = stored.block().unwrap_or((1, 0));
        let bytes = bytes_of(&shape, block).ok_or_else(|| {
            header(KIND, format!("tensor {} is no whole number of blocks, or beyond any file", shown(&name)))
        })?;
        Ok(Tensor { name, shape, stored, offset, bytes })
    }
}

/// Bytes of a metadata value of fixed size.
const fn size_of(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// GGML's type numbers. NVFP4 (40) has blocks of another shape than ours.
fn stored(kind: u32) -> Stored {
    use WeightFormat as F;
    Stored::As(match kind {
        0 => F::Fp32,
        1 => F::Fp16,
        2 => F::Q4_0,
        3 => F::Q4_1,
        6 => F::Q5_0,
        7 => F::Q5_1,
        8 => F::Q8_0,
        10 => F::Q2K,
        11 => F::Q3KM,
        12 => F::Q4KM,
        13 => F::Q5KM,
        14 => F::Q6K,
        16 => F::Iq2Xxs,
        17 => F::Iq2Xs,
        18 => F::Iq3Xxs,
        19 => F::Iq1S,
        20 => F::Iq4Nl,
        21 => F::Iq3S,
        22 => F::Iq2S,
        23 => F::Iq4Xs,
        28 => return Stored::Fp64,
        29 => F::Iq1M,
        30 => F::Bf16,
        34 => F::Tq1_0,
        35 => F::Tq2_0,
        39 => F::Mxfp4,
        41 => F::Q1_0,
        other => return Stored::Other(format!("GGML type {other}")),
    })
}
