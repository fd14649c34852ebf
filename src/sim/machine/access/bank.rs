//! Loads from the read-only banks: the kernel's parameters and constant memory.

use super::super::regs::Wide;
use super::super::warp::Warp;
use super::super::{Env, Stop};
use super::fault::{fault, misaligned};
use super::lane::scatter;
use super::{At, lanes};
use crate::sim::finding::FindingKind;
use crate::sim::op::Access;

pub(super) fn load_bytes(
    env: &Env<'_>,
    warp: &mut Warp,
    addresses: &Wide,
    at: At,
    access: &Access,
    what: &str,
    bank: &[u8],
) -> Result<(), Stop> {
    let total = usize::from(access.bytes) * usize::from(access.count);
    let mut regs = warp.regs(at.frame);
    for lane in lanes(at.mask) {
        let from = addresses[lane] as usize;
        if !from.is_multiple_of(total) {
            return Err(misaligned(env, at.pc, addresses[lane], total));
        }
        let Some(data) = bank.get(from..from.saturating_add(total)) else {
            let message = format!(
                "a load of {total} bytes at offset {from} of {what}, which have {} bytes",
                bank.len()
            );
            return Err(fault(env, at.pc, FindingKind::OutOfBounds, &message));
        };
        scatter(&mut regs, access, lane, data);
    }
    Ok(())
}
