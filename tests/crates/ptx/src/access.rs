//! Loads, stores and atomic operations of a warp.

use crate::lanes::Lanes;
use crate::parse::Space;
use crate::warp::{Fail, Machine, Trouble, Warp, lanes_of};

/// Generic addresses of the other state spaces lie in windows above every global address.
pub(crate) const SHARED_WINDOW: u64 = 1 << 56;
pub(crate) const LOCAL_WINDOW: u64 = 2 << 56;
pub(crate) const PARAM_WINDOW: u64 = 3 << 56;
/// The module's own variables have addresses only here.
pub(crate) const STATIC_WINDOW: u64 = 4 << 56;

/// How memory is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub space: Space,
    /// Bytes of an element.
    pub bytes: usize,
    pub signed: bool,
    /// Bits of the registers that are loaded.
    pub register: u32,
    /// Goes through L1.
    pub cached: bool,
}

/// `[base + offset]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub base: Option<usize>,
    pub offset: i64,
}

/// `atom` and `red`.
#[derive(Clone, Copy)]
pub(crate) struct Atomic {
    pub access: Access,
    /// From what is there, `b` and `c`.
    pub apply: fn(u64, u64, u64) -> u64,
}

/// The most bytes that a lane moves in one instruction.
const WIDEST: usize = 32;

impl Machine<'_> {
    /// The addresses of the lanes, aligned, and the state space that they are all in.
    pub fn addresses(
        &self,
        warp: &Warp,
        access: &Access,
        address: Address,
        bytes: usize,
        active: u32,
    ) -> Result<(Space, Lanes), Fail> {
        let mut addresses = match address.base {
            Some(base) => *warp.read(self, base, active)?,
            None => [0; 32],
        };
        let mut space = None;
        for lane in lanes_of(active) {
            let at = &mut addresses[lane];
            *at = at.wrapping_add_signed(address.offset);
            if *at % bytes as u64 != 0 {
                return Err(Fail::at(lane, Trouble::Misaligned { address: *at, bytes }));
            }
            let here = match (access.space, *at >> 56) {
                (Space::Generic | Space::Global | Space::Const, 4) => Space::Const,
                (Space::Generic, 1) => Space::Shared,
                (Space::Generic, 2) => Space::Local,
                (Space::Generic, 3) => Space::Param,
                (Space::Generic, _) => Space::Global,
                (given, _) => given,
            };
            if access.space == Space::Generic || here == Space::Const {
                // The windows are cut off; a global address has nothing there.
                *at &= if here == Space::Global { u64::MAX } else { (1 << 56) - 1 };
            }
            if *space.get_or_insert(here) != here {
                let what = "generic addresses of two state spaces in one instruction".to_owned();
                return Err(Fail::at(lane, Trouble::Unsupported { what }));
            }
        }
        Ok((space.unwrap_or(access.space), addresses))
    }

    pub fn load(
        &mut self,
        warp: &mut Warp,
        access: &Access,
        into: &[Option<usize>],
        address: Address,
        active: u32,
    ) -> Result<(), Fail> {
        let bytes = access.bytes * into.len();
        let (space, addresses) = self.addresses(warp, access, address, bytes, active)?;
        let mut data = [0; 32 * WIDEST];
        if space == Space::Global {
            self.counts.global_read += distinct(&addresses, active) * bytes as u64;
            self.memory.warp(self.block, u32::from(warp.index), access.cached);
            self.gather(&addresses, bytes, active, &mut data)?;
        } else {
            for lane in lanes_of(active) {
                let part = &mut data[lane * bytes..(lane + 1) * bytes];
                self.read(warp, space, addresses[lane], lane, part)
                    .map_err(|trouble| Fail::at(lane, trouble))?;
            }
        }
        for (index, register) in into.iter().enumerate() {
            let Some(register) = *register else { continue };
            let mut lanes = [0; 32];
            elements(&data, index * access.bytes, bytes, access.bytes, &mut lanes);
            if access.signed {
                let spare = 64 - 8 * access.bytes as u32;
                let mask = u64::MAX >> (64 - access.register);
                for lane in &mut lanes {
                    *lane = ((*lane << spare).cast_signed() >> spare).cast_unsigned() & mask;
                }
            }
            warp.write(register, &lanes, active);
        }
        Ok(())
    }

    /// Reads global memory: once for lanes that lie side by side, once for lanes that read the same.
    fn gather(&mut self, addresses: &Lanes, bytes: usize, active: u32, data: &mut [u8]) -> Result<(), Fail> {
        let mut lane = active.trailing_zeros() as usize;
        while lane < 32 {
            let mut end = lane + 1;
            while end < 32
                && active >> end & 1 == 1
                && addresses[end] == addresses[lane].wrapping_add(((end - lane) * bytes) as u64)
            {
                end += 1;
            }
            let address = addresses[lane];
            self.memory
                .read(address, &mut data[lane * bytes..end * bytes])
                .map_err(|what| Fail::at(lane, Trouble::Memory { address, what }))?;
            let last = end - 1;
            while end < 32 && active >> end & 1 == 1 && addresses[end] == addresses[last] {
                data.copy_within(last * bytes..(last + 1) * bytes, end * bytes);
                end += 1;
            }
            lane = if end < 32 { end + (active >> end).trailing_zeros().min(32) as usize } else { 32 };
        }
        Ok(())
    }

    fn read(
        &mut self,
        warp: &Warp,
        space: Space,
        address: u64,
        lane: usize,
        into: &mut [u8],
    ) -> Result<(), Trouble> {
        let source = match space {
            Space::Global | Space::Generic => {
                return self.memory.read(address, into).map_err(|what| Trouble::Memory { address, what });
            }
            Space::Shared => return self.shared.read(warp.thread(lane), address, into),
            Space::Local => warp.local_of(lane),
            Space::Param => self.params,
            Space::Const => self.statics,
        };
        into.copy_from_slice(part(source, address, into.len())?);
        Ok(())
    }

    pub fn store(
        &mut self,
        warp: &mut Warp,
        access: &Access,
        from: &[usize],
        address: Address,
        active: u32,
    ) -> Result<(), Fail> {
        let bytes = access.bytes * from.len();
        let (space, addresses) = self.addresses(warp, access, address, bytes, active)?;
        let mut data = [0; 32 * WIDEST];
        for (index, &register) in from.iter().enumerate() {
            let lanes = warp.read(self, register, active)?;
            for (lane, value) in lanes.iter().enumerate() {
                let at = lane * bytes + index * access.bytes;
                data[at..at + access.bytes].copy_from_slice(&value.to_le_bytes()[..access.bytes]);
            }
        }
        if space == Space::Global {
            self.counts.global_written += distinct(&addresses, active) * bytes as u64;
            self.memory.warp(self.block, u32::from(warp.index), false);
            return self.scatter(&addresses, bytes, active, &data);
        }
        for lane in lanes_of(active) {
            let part = &data[lane * bytes..(lane + 1) * bytes];
            let address = addresses[lane];
            self.write(warp, space, address, lane, part).map_err(|trouble| Fail::at(lane, trouble))?;
        }
        Ok(())
    }

    fn scatter(&mut self, addresses: &Lanes, bytes: usize, active: u32, data: &[u8]) -> Result<(), Fail> {
        let mut lane = active.trailing_zeros() as usize;
        while lane < 32 {
            let mut end = lane + 1;
            while end < 32
                && active >> end & 1 == 1
                && addresses[end] == addresses[lane].wrapping_add(((end - lane) * bytes) as u64)
            {
                end += 1;
            }
            let address = addresses[lane];
            self.memory
                .write(address, &data[lane * bytes..end * bytes])
                .map_err(|what| Fail::at(lane, Trouble::Memory { address, what }))?;
            lane = if end < 32 { end + (active >> end).trailing_zeros().min(32) as usize } else { 32 };
        }
        Ok(())
    }

    fn write(
        &mut self,
        warp: &mut Warp,
        space: Space,
        address: u64,
        lane: usize,
        from: &[u8],
    ) -> Result<(), Trouble> {
        match space {
            Space::Global | Space::Generic => {
                self.memory.write(address, from).map_err(|what| Trouble::Memory { address, what })
            }
            Space::Shared => self.shared.write(warp.thread(lane), address, from),
            Space::Local => {
                let local = warp.local_of_mut(lane);
                let size = local.len();
                let to = usize::try_from(address)
                    .ok()
                    .and_then(|first| local.get_mut(first..first.checked_add(from.len())?))
                    .ok_or_else(|| outside(address, from.len(), size))?;
                to.copy_from_slice(from);
                Ok(())
            }
            Space::Param | Space::Const => {
                let what = "a store to parameters or to the module's own variables".to_owned();
                Err(Trouble::Unsupported { what })
            }
        }
    }

    /// Lane after lane, in order.
    pub fn atomic(
        &mut self,
        warp: &mut Warp,
        atomic: &Atomic,
        d: Option<usize>,
        address: Address,
        [b, c]: [usize; 2],
        active: u32,
    ) -> Result<(), Fail> {
        let bytes = atomic.access.bytes;
        let (space, addresses) = self.addresses(warp, &atomic.access, address, bytes, active)?;
        let (b, c) = (*warp.read(self, b, active)?, *warp.read(self, c, active)?);
        let mask = u64::MAX >> (64 - 8 * bytes);
        let mut before = [0; 32];
        if space == Space::Global {
            self.memory.warp(self.block, u32::from(warp.index), false);
        }
        for lane in lanes_of(active) {
            let apply = |old: u64| (atomic.apply)(old, b[lane] & mask, c[lane] & mask) & mask;
            before[lane] = self
                .exchange(space, addresses[lane], bytes, apply)
                .map_err(|trouble| Fail::at(lane, trouble))?;
        }
        if let Some(d) = d {
            warp.write(d, &before, active);
        }
        Ok(())
    }

    /// Replaces what is in memory by what `apply` makes of it, and gives what was there.
    fn exchange(
        &mut self,
        space: Space,
        address: u64,
        bytes: usize,
        apply: impl Fn(u64) -> u64,
    ) -> Result<u64, Trouble> {
        let refused = |what| Trouble::Memory { address, what };
        let mut word = [0; 8];
        match space {
            Space::Shared => self.shared.atomic(address, &mut word[..bytes])?,
            Space::Global => self.memory.read(address, &mut word[..bytes]).map_err(refused)?,
            _ => {
                let what = "an atomic operation outside of global and shared memory".to_owned();
                return Err(Trouble::Unsupported { what });
            }
        }
        let before = u64::from_le_bytes(word);
        let after = &apply(before).to_le_bytes()[..bytes];
        if space == Space::Shared {
            self.shared.atomic_end(address, after)?;
        } else {
            self.memory.write(address, after).map_err(refused)?;
            self.counts.global_read += bytes as u64;
            self.counts.global_written += bytes as u64;
        }
        Ok(before)
    }

    /// `ldmatrix`: row r of matrix i from the address of lane 8*i + r, to lane r's neighbours as fragments.
    pub fn load_matrix(
        &mut self,
        warp: &mut Warp,
        into: &[usize],
        address: Address,
        transposed: bool,
    ) -> Result<(), Fail> {
        let access = Access { space: Space::Shared, bytes: 16, signed: false, register: 32, cached: false };
        let given = if into.len() == 4 { u32::MAX } else { (1 << (8 * into.len())) - 1 };
        let (_, addresses) = self.addresses(warp, &access, address, 16, given)?;
        for (matrix, &register) in into.iter().enumerate() {
            let mut rows = [[0; 16]; 8];
            for (row, bytes) in rows.iter_mut().enumerate() {
                let lane = 8 * matrix + row;
                self.shared
                    .read(warp.thread(lane), addresses[lane], bytes)
                    .map_err(|trouble| Fail::at(lane, trouble))?;
            }
            let element = |row: usize, column: usize| {
                u64::from(u16::from_le_bytes([rows[row][2 * column], rows[row][2 * column + 1]]))
            };
            let lanes = std::array::from_fn(|lane| {
                let (group, column) = (lane / 4, 2 * (lane % 4));
                let pair = if transposed {
                    (element(column, group), element(column + 1, group))
                } else {
                    (element(group, column), element(group, column + 1))
                };
                pair.0 | pair.1 << 16
            });
            warp.write(register, &lanes, u32::MAX);
        }
        Ok(())
    }
}

/// Different addresses among the lanes. All are multiples of the access's size, so two are the same or apart.
fn distinct(addresses: &Lanes, active: u32) -> u64 {
    let mut used = [0; 32];
    let mut count = 0;
    for lane in lanes_of(active) {
        used[count] = addresses[lane];
        count += 1;
    }
    let used = &mut used[..count];
    if !used.is_sorted() {
        used.sort_unstable();
    }
    used.chunk_by(|a, b| a == b).count() as u64
}

/// Elements of `width` bytes, one a lane, `stride` bytes apart.
fn elements(data: &[u8], first: usize, stride: usize, width: usize, lanes: &mut Lanes) {
    for (lane, value) in lanes.iter_mut().enumerate() {
        let at = first + lane * stride;
        let mut word = [0; 8];
        word[..width].copy_from_slice(&data[at..at + width]);
        *value = u64::from_le_bytes(word);
    }
}

fn part(source: &[u8], address: u64, length: usize) -> Result<&[u8], Trouble> {
    usize::try_from(address)
        .ok()
        .and_then(|first| source.get(first..first.checked_add(length)?))
        .ok_or_else(|| outside(address, length, source.len()))
}

fn outside(address: u64, length: usize, size: usize) -> Trouble {
    Trouble::Memory { address, what: format!("{length} bytes at {address:#x} of a space of {size} bytes") }
}
