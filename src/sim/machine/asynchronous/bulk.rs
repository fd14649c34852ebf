//! Bulk copies: bytes or boxes of tensors between global and shared memory.

use super::super::access::{
    At, Subnormals, Visit, addresses, apply, atom_bytes, fault, lanes, misaligned, refused,
    report_overwrite, report_race, uninitialised,
};
use super::super::regs::LANES;
use super::super::{Block, Env, Stop, window};
use super::{no_such_block, resolve};
use crate::sim::causal::Knowledge;
use crate::sim::decode::SHARED_BASE;
use crate::sim::finding::FindingKind;
use crate::sim::float::{self, Format, Rounding};
use crate::sim::memory::{Author, Cursor};
use crate::sim::op::{
    Address, AtomOp, AtomType, BulkLoad, BulkPlace, BulkReduce, BulkStore, FloatOp, Pc, Send, Slot,
    Space,
};
use crate::sim::shared::By;
use crate::sim::tensor_map::{PIECE, Swizzle, TensorMap};
use crate::source::DType;

/// Boxes of a tensor stand at multiples of this in shared memory.
const BOX_ALIGNMENT: u32 = 128;

/// Bytes on their way into shared memory.
pub(in crate::sim::machine) struct Delivery {
    data: Vec<u8>,
    swizzle: Swizzle,
    /// Shared address in each block that gets it.
    address: u32,
    mbarrier: u32,
    ranks: Vec<usize>,
    /// Changes what is there instead of replacing it.
    reduce: Option<(AtomOp, AtomType)>,
    knows: Knowledge,
    pc: Pc,
}

impl Delivery {
    pub fn run(self, env: &mut Env<'_>, blocks: &mut [Block]) -> Result<(), Stop> {
        let count = blocks.len();
        for &rank in &self.ranks {
            let Some(block) = blocks.get_mut(rank) else {
                return Err(no_such_block(env, self.pc, rank, count));
            };
            block.receive(env, &self)?;
        }
        Ok(())
    }
}

impl Block {
    pub(super) fn bulk_load(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        load: &BulkLoad,
    ) -> Result<(), Stop> {
        let targets = self.shared_addresses(at, load.dst);
        let mbarriers = self.shared_addresses(at, load.mbarrier);
        let masks = (load.multicast).map(|slot| self.warps[at.warp].regs(at.frame).n(slot));
        for lane in lanes(at.mask) {
            let one = At {
                mask: 1 << lane,
                ..at
            };
            let (rank, address) = resolve(targets[lane] as u32, self.rank());
            let (_, mbarrier) = resolve(mbarriers[lane] as u32, self.rank());
            let ranks = match masks {
                Some(masks) => lanes(masks[lane] & 0xffff).collect(),
                None => vec![rank],
            };
            let (data, swizzle, alignment) = match &load.src {
                BulkPlace::Tensor { map, at: slots } => {
                    let (map, coordinates) = self.tensor(env, one, map, slots)?;
                    let data = gather(env, at.pc, map, &coordinates, ranks.len())?;
                    (data, map.swizzle, BOX_ALIGNMENT)
                }
                BulkPlace::Global { address, bytes } => {
                    let (from, length) = self.run_of(env, one, address, *bytes)?;
                    let mut data = vec![0; length as usize];
                    read(env, at.pc, from, &mut data, lane)?;
                    count(env, at.pc, u64::from(length), 1, ranks.len());
                    (data, Swizzle::None, PIECE)
                }
                BulkPlace::Shared { address, bytes } => {
                    let (from, length) = self.run_of(env, one, address, *bytes)?;
                    let actor = self.actors.stores(at.warp);
                    let data = self.take(env, one, from as u32, length, Swizzle::None, actor)?;
                    (data, Swizzle::None, PIECE)
                }
            };
            if !address.is_multiple_of(alignment) {
                return Err(misaligned(
                    env,
                    at.pc,
                    u64::from(address),
                    alignment as usize,
                ));
            }
            env.mail.push(super::Mail::Deliver(Box::new(Delivery {
                data,
                swizzle,
                address,
                mbarrier,
                ranks,
                reduce: load.reduce,
                knows: self.knowledge[at.warp].clone(),
                pc: at.pc,
            })));
        }
        Ok(())
    }

    /// `st.async`, `red.async`: registers to another block's shared memory, told to an mbarrier there.
    pub(super) fn send(&mut self, env: &mut Env<'_>, at: At, send: &Send) -> Result<(), Stop> {
        let targets = self.shared_addresses(at, send.dst);
        let mbarriers = self.shared_addresses(at, send.mbarrier);
        for lane in lanes(at.mask) {
            let (rank, address) = resolve(targets[lane] as u32, self.rank());
            let (_, mbarrier) = resolve(mbarriers[lane] as u32, self.rank());
            let regs = self.warps[at.warp].regs(at.frame);
            let mut data = Vec::new();
            for reg in &send.regs {
                let value = regs.any(*reg)[lane];
                data.extend(&value.to_le_bytes()[..usize::from(send.bytes)]);
            }
            if !address.is_multiple_of(data.len() as u32) {
                return Err(misaligned(env, at.pc, u64::from(address), data.len()));
            }
            count(env, at.pc, data.len() as u64, 1, 1);
            env.mail.push(super::Mail::Deliver(Box::new(Delivery {
                data,
                swizzle: Swizzle::None,
                address,
                mbarrier,
                ranks: vec![rank],
                reduce: send.reduce,
                knows: self.knowledge[at.warp].clone(),
                pc: at.pc,
            })));
        }
        Ok(())
    }

    /// Writes what a bulk load brings, and tells the mbarrier.
    fn receive(&mut self, env: &mut Env<'_>, delivery: &Delivery) -> Result<(), Stop> {
        let Delivery {
            data,
            swizzle,
            address,
            mbarrier,
            reduce,
            knows,
            pc,
            ..
        } = delivery;
        let length = data.len() as u32;
        let end = self.inside(env, *pc, *address, length)?;
        self.used_by(env, *pc, *mbarrier, knows);
        let actor = self.reported_to(env, *pc, *mbarrier)?;
        let epoch = self.next_epoch(actor);
        self.visited(
            env,
            Visit {
                actor,
                epoch,
                pc: *pc,
            },
        );
        let by = By {
            actor,
            epoch,
            knows,
            pc: *pc,
        };
        let reduced = reduce.map(|(op, ty)| self.reduced_words(*address, data, op, ty));
        let data = reduced.as_ref().unwrap_or(data);
        let mut race = self.shared.overwrites_reading(*address, end, &by);
        for (index, word) in data.chunks_exact(4).enumerate() {
            let place = swizzle.apply(address + 4 * index as u32);
            let mut value = [0; 4];
            value.copy_from_slice(word);
            let seen = self
                .shared
                .write_async(place as usize / 4, u32::from_le_bytes(value), &by);
            race = race.or(seen);
        }
        self.shared.note_tile(*address, end, *swizzle, *pc);
        if let Some(race) = race.filter(|_| env.options.checks) {
            report_race(env, *pc, race);
        }
        self.bytes_came(env, *mbarrier, length, epoch);
        Ok(())
    }

    /// What shared memory holds after a reduction by `data`.
    fn reduced_words(&self, address: u32, data: &[u8], op: AtomOp, ty: AtomType) -> Vec<u8> {
        let words = data.len() / 4;
        let first = address as usize / 4;
        let old: Vec<u8> = (first..first + words)
            .flat_map(|word| self.shared.word(word).to_le_bytes())
            .collect();
        let bytes = atom_bytes(ty);
        let value = |from: &[u8]| {
            let mut whole = [0; 8];
            whole[..bytes].copy_from_slice(from);
            u64::from_le_bytes(whole)
        };
        (old.chunks_exact(bytes).zip(data.chunks_exact(bytes)))
            .flat_map(|(old, new)| {
                let new = reduced(op, ty, value(old), value(new));
                new.to_le_bytes().into_iter().take(bytes)
            })
            .collect()
    }

    pub(super) fn bulk_store(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        store: &BulkStore,
    ) -> Result<(), Stop> {
        let sources = self.shared_addresses(at, store.src);
        env.changes += 1;
        for lane in lanes(at.mask) {
            let one = At {
                mask: 1 << lane,
                ..at
            };
            let source = resolve(sources[lane] as u32, self.rank()).1;
            let actor = self.actors.stores(at.warp);
            match &store.dst {
                BulkPlace::Tensor { map, at: slots } => {
                    let (map, coordinates) = self.tensor(env, one, map, slots)?;
                    if !source.is_multiple_of(BOX_ALIGNMENT) {
                        let found = u64::from(source);
                        return Err(misaligned(env, at.pc, found, BOX_ALIGNMENT as usize));
                    }
                    if let Some(before) = coordinates.iter().find(|at| **at < 0) {
                        let message = format!(
                            "the box to store begins at coordinate {before} of `{}`: it may reach beyond a tensor, not begin before it (error 715)",
                            map.name
                        );
                        return Err(fault(env, at.pc, FindingKind::OutOfBounds, &message));
                    }
                    let narrow = map.pitch() > map.row_bytes();
                    let bytes = if narrow { 0 } else { map.box_bytes() };
                    let data = self.take(env, one, source, bytes, map.swizzle, actor)?;
                    let ty = element_type(map.dtype);
                    let reduce = store.reduce.map(|BulkReduce { op, .. }| (op, ty));
                    let mut moved = 0;
                    for row in map.rows(&coordinates) {
                        let Some(to) = row.address else { continue };
                        let from = (row.offset + row.before) as usize;
                        let alone;
                        let piece = if narrow {
                            let place = source + row.offset / map.row_bytes() * map.pitch();
                            alone = self.take(env, one, place, row.stored, map.swizzle, actor)?;
                            &alone
                        } else {
                            &data[from..from + row.stored as usize]
                        };
                        self.put_out(env, one, to, piece, reduce, lane)?;
                        moved += u64::from(row.stored);
                    }
                    count(env, at.pc, moved, coordinates.len() as u64, 1);
                }
                BulkPlace::Global { address, bytes } => {
                    let (to, length) = self.run_of(env, one, address, *bytes)?;
                    if !source.is_multiple_of(PIECE) {
                        return Err(misaligned(env, at.pc, u64::from(source), PIECE as usize));
                    }
                    let data = self.take(env, one, source, length, Swizzle::None, actor)?;
                    let reduce = match store.reduce {
                        None => None,
                        Some(BulkReduce { op, ty: Some(ty) }) => Some((op, ty)),
                        Some(BulkReduce { ty: None, .. }) => {
                            let message = "a reduction without an element type";
                            return Err(fault(env, at.pc, FindingKind::Unsupported, message));
                        }
                    };
                    self.put_out(env, one, to, &data, reduce, lane)?;
                    count(env, at.pc, u64::from(length), 1, 1);
                }
                BulkPlace::Shared { .. } => {
                    let message = "a bulk store into shared memory";
                    return Err(fault(env, at.pc, FindingKind::Unsupported, message));
                }
            }
        }
        self.asynchronous.stores[at.warp].last = Some(at.pc);
        Ok(())
    }

    /// Bytes of this block's shared memory, as asynchronous work of `actor` reads them.
    fn take(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        address: u32,
        bytes: u32,
        swizzle: Swizzle,
        actor: usize,
    ) -> Result<Vec<u8>, Stop> {
        let end = self.inside(env, at.pc, address, bytes)?;
        let words = address as usize / 4..end as usize / 4;
        let by = self.beside(actor, at);
        let seen = self.shared.check_async_read(words, &by);
        let epoch = by.epoch;
        self.shared
            .note_reading(vec![(address, end)], actor, epoch, at.pc);
        if seen.undefined && env.options.checks {
            uninitialised(env, at.pc, "shared memory");
        }
        if let Some(race) = seen.race {
            report_race(env, at.pc, race);
        }
        let mut out = Vec::with_capacity(bytes as usize);
        for offset in (0..bytes).step_by(4) {
            let place = swizzle.apply(address + offset) as usize / 4;
            out.extend(self.shared.word(place).to_le_bytes());
        }
        Ok(out)
    }

    fn put_out(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        address: u64,
        data: &[u8],
        reduce: Option<(AtomOp, AtomType)>,
        lane: usize,
    ) -> Result<(), Stop> {
        let bytes = data.len();
        let refuse = |env: &Env<'_>, refusal| refused(env, at.pc, &refusal, address, bytes, lane);
        let Some((op, ty)) = reduce else {
            let author = Author {
                block: self.serial,
                warp: at.warp as u8,
                seen: &self.knowledge[at.warp].seen[self.actors.warps()],
                pc: at.pc,
                launch_start: env.first_block,
                synchronised: self.synchronised,
            };
            let author = env.options.checks.then_some(author);
            let overwrite = match env.memory.write_span(address, data, author.as_ref()) {
                Ok(overwrite) => overwrite,
                Err(refusal) => return Err(refuse(env, refusal)),
            };
            if let Some(overwrite) = overwrite {
                report_overwrite(env, at.pc, overwrite);
            }
            return Ok(());
        };
        let size = atom_bytes(ty);
        let mut undefined = false;
        for (index, piece) in data.chunks_exact(size).enumerate() {
            let mut value = [0; 8];
            value[..size].copy_from_slice(piece);
            let value = u64::from_le_bytes(value);
            let place = address + (index * size) as u64;
            let mut cursor = Cursor::default();
            let change = |old| reduced(op, ty, old, value);
            let updated = (env.memory).update(&mut cursor, place, size, change, env.options.checks);
            match updated {
                Ok((_, defined)) => undefined |= !defined,
                Err(refusal) => return Err(refuse(env, refusal)),
            }
        }
        if undefined {
            uninitialised(env, at.pc, "global memory");
        }
        Ok(())
    }

    /// The tensor map that a lane's address names, and the lane's coordinates.
    fn tensor<'e>(
        &mut self,
        env: &Env<'e>,
        at: At,
        map: &Address,
        slots: &[Slot],
    ) -> Result<(&'e TensorMap, Vec<i32>), Stop> {
        let lane = at.mask.trailing_zeros() as usize & (LANES - 1);
        let regs = self.warps[at.warp].regs(at.frame);
        let address = addresses(&regs, at.frame, map)[lane];
        let coordinates: Vec<i32> = slots
            .iter()
            .map(|&slot| regs.n(slot)[lane] as i32)
            .collect();
        let offset = address.wrapping_sub(window::base(Space::Param));
        let known = &env.launch.tensor_maps;
        let Some((_, map)) = known.iter().find(|(at, _)| u64::from(*at) == offset) else {
            return Err(fault(
                env,
                at.pc,
                FindingKind::OutOfBounds,
                &format!(
                    "{address:#x} is the address of no tensor map among the kernel's parameters (take it with `mov.b64` and `cvta.param.u64`)"
                ),
            ));
        };
        if map.dims.len() != coordinates.len() {
            let message = format!(
                "{} coordinates for `{}`, a tensor of {} dimensions",
                coordinates.len(),
                map.name,
                map.dims.len()
            );
            return Err(fault(env, at.pc, FindingKind::OutOfBounds, &message));
        }
        let inward = i64::from(coordinates[0]) * i64::from(map.element());
        if inward.rem_euclid(i64::from(PIECE)) != 0 {
            let message = format!(
                "the innermost coordinate {} of `{}` lies {inward} bytes in, no multiple of {PIECE}: hardware refuses it (error 715)",
                coordinates[0], map.name
            );
            return Err(fault(env, at.pc, FindingKind::Misaligned, &message));
        }
        Ok((map, coordinates))
    }

    /// A lane's address and byte count of a copy of bytes in a row.
    fn run_of(
        &mut self,
        env: &Env<'_>,
        at: At,
        address: &Address,
        bytes: Slot,
    ) -> Result<(u64, u32), Stop> {
        let lane = at.mask.trailing_zeros() as usize & (LANES - 1);
        let regs = self.warps[at.warp].regs(at.frame);
        let from = addresses(&regs, at.frame, address)[lane];
        let length = regs.n(bytes)[lane];
        for (what, found) in [("address", from), ("size", u64::from(length))] {
            if !found.is_multiple_of(u64::from(PIECE)) {
                let message = format!("{what} {found} of a bulk copy is no multiple of {PIECE}");
                return Err(fault(env, at.pc, FindingKind::Misaligned, &message));
            }
        }
        Ok((from, length))
    }

    /// The end of a part of shared memory, if all of it is there.
    fn inside(&self, env: &Env<'_>, pc: Pc, address: u32, bytes: u32) -> Result<u32, Stop> {
        let end = u64::from(address) + u64::from(bytes);
        if address >= SHARED_BASE && end <= u64::from(self.shared.limit()) {
            return Ok(end as u32);
        }
        let message = format!(
            "{bytes} bytes at shared offset {}, and the block has {} bytes of shared memory",
            i64::from(address) - i64::from(SHARED_BASE),
            self.shared.limit() - SHARED_BASE
        );
        Err(fault(env, pc, FindingKind::OutOfBounds, &message))
    }
}

/// A box's bytes in order, for so many blocks.
fn gather(
    env: &mut Env<'_>,
    pc: Pc,
    map: &TensorMap,
    at: &[i32],
    blocks: usize,
) -> Result<Vec<u8>, Stop> {
    if map.pitch() > map.row_bytes() {
        let message = format!(
            "the box of `{}` has rows of {} bytes under a {}: what a load puts beside them was not measured; make the box as wide as the swizzle",
            map.name,
            map.row_bytes(),
            map.swizzle.name()
        );
        return Err(fault(env, pc, FindingKind::Unsupported, &message));
    }
    let mut data = map.filled();
    let mut moved = 0;
    for row in map.rows(at) {
        let Some(from) = row.address else { continue };
        let start = (row.offset + row.before) as usize;
        read(
            env,
            pc,
            from,
            &mut data[start..start + row.inside as usize],
            0,
        )?;
        moved += u64::from(row.inside);
    }
    count(env, pc, moved, at.len() as u64, blocks);
    Ok(data)
}

fn read(env: &mut Env<'_>, pc: Pc, from: u64, out: &mut [u8], lane: usize) -> Result<(), Stop> {
    let bytes = out.len();
    match env.memory.read_span(from, out, env.options.checks) {
        Ok(true) => Ok(()),
        Ok(false) => {
            uninitialised(env, pc, "global memory");
            Ok(())
        }
        Err(refusal) => Err(refused(env, pc, &refusal, from, bytes, lane)),
    }
}

/// Bytes between L2 and the shared memory of so many blocks: no load/store unit is busy with them.
fn count(env: &mut Env<'_>, pc: Pc, bytes: u64, requests: u64, blocks: usize) {
    let line = &mut env.counts.by_pc[pc as usize];
    line.requests += requests.min(1);
    line.bytes += bytes;
    line.bulk_bytes += bytes;
    line.arrived_bytes += bytes * blocks as u64;
}

fn element_type(dtype: DType) -> AtomType {
    match dtype {
        DType::F64 => AtomType::Float(Format::F64),
        DType::F32 => AtomType::Float(Format::F32),
        DType::F16 => AtomType::Float(Format::F16),
        DType::Bf16 => AtomType::Float(Format::Bf16),
        DType::I32 => AtomType::Int {
            bits: 32,
            signed: true,
        },
        DType::U32 | DType::U8 => AtomType::Int {
            bits: 32,
            signed: false,
        },
        DType::I64 => AtomType::Int {
            bits: 64,
            signed: true,
        },
        DType::U64 => AtomType::Int {
            bits: 64,
            signed: false,
        },
    }
}

/// A reduction's new value. Unlike atomics of a warp, sums of f32 keep subnormals.
fn reduced(op: AtomOp, ty: AtomType, old: u64, value: u64) -> u64 {
    match (op, ty) {
        (AtomOp::Add, AtomType::Float(format)) => {
            float::binary(format, FloatOp::Add, Rounding::NearestEven, old, value)
        }
        _ => apply(op, ty, old, value, Subnormals::Flushed),
    }
}
