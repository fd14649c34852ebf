//! Loads and stores in a thread's own stack.

use super::super::regs::Wide;
use super::super::warp::Warp;
use super::super::{Block, Env, Stop};
use super::count::count_local;
use super::fault::{fault, misaligned, uninitialised};
use super::lane::{collect, scatter};
use super::{At, lanes};
use crate::sim::finding::FindingKind;
use crate::sim::op::{Access, Pc};

impl Block {
    pub(super) fn load_local(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        let total = usize::from(access.bytes) * usize::from(access.count);
        let mut buffer = [0u8; 64];
        let mut undefined = false;
        for lane in lanes(at.mask) {
            let warp = &mut self.warps[at.warp];
            let address = check_local(env, warp, at.pc, addresses[lane], total, lane)?;
            let data = &mut buffer[..total];
            for (index, byte) in data.iter_mut().enumerate() {
                let place = address + index;
                undefined |= warp.stack_defined[place / 4] >> lane & 1 == 0;
                *byte = (warp.stack[place / 4][lane] >> (8 * (place % 4))) as u8;
            }
            scatter(&mut warp.regs(at.frame), access, lane, data);
        }
        if !access.private {
            count_local(env, at, total);
            if undefined && env.options.checks {
                uninitialised(env, at.pc, "local memory");
            }
        }
        Ok(())
    }

    pub(super) fn store_local(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        let total = usize::from(access.bytes) * usize::from(access.count);
        let mut buffer = [0u8; 64];
        for lane in lanes(at.mask) {
            let warp = &mut self.warps[at.warp];
            let address = check_local(env, warp, at.pc, addresses[lane], total, lane)?;
            let data = &mut buffer[..total];
            collect(&warp.regs(at.frame), access, lane, data);
            for (index, byte) in data.iter().enumerate() {
                let place = address + index;
                let shift = 8 * (place % 4);
                let word = &mut warp.stack[place / 4][lane];
                *word = *word & !(0xff << shift) | u32::from(*byte) << shift;
                warp.stack_defined[place / 4] |= 1 << lane;
            }
        }
        if !access.private {
            count_local(env, at, total);
        }
        Ok(())
    }
}

fn check_local(
    env: &Env<'_>,
    warp: &Warp,
    pc: Pc,
    address: u64,
    bytes: usize,
    lane: usize,
) -> Result<usize, Stop> {
    if !address.is_multiple_of(bytes as u64) {
        return Err(misaligned(env, pc, address, bytes));
    }
    let size = warp.stack.len() as u64 * 4;
    if address.saturating_add(bytes as u64) > size {
        let message = format!(
            "lane {lane} accesses {bytes} bytes at local offset {address}, and the thread's stack has {size} bytes"
        );
        return Err(fault(env, pc, FindingKind::OutOfBounds, &message));
    }
    Ok(address as usize)
}
