//! Mbarriers, asynchronous copies and what else goes on beside a warp.

use super::super::operand::Ty;
use super::super::{Body, Decoder};
use super::Decoded;
use super::memory::atom_type;
use super::parts::Parts;
use crate::ptx::ir::{Immediate, Operand};
use crate::sim::op::{
    Alu, AsyncOp, AtomOp, AtomType, BulkLoad, BulkPlace, BulkReduce, BulkStore, Copy, Mbarrier,
    MbarrierAction, Op, PhaseOf, Piece, Reg, Send, SharedPlace, Slot, SourcePlace, Space,
};

impl Decoder<'_> {
    pub(super) fn mbarrier(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let space = p.space();
        let verb = p.instruction.modifiers.first().map_or("", String::as_str);
        let place = |decoder: &mut Self, body: &mut Body, at: usize| {
            decoder.shared_place(body, p.operand(at)?, space)
        };
        let (place, action) = match verb {
            "init" => (
                place(self, body, 0)?,
                MbarrierAction::Initialise {
                    count: self.src(body, p.operand(1)?, Ty::B32)?,
                },
            ),
            "inval" => (place(self, body, 0)?, MbarrierAction::Invalidate),
            "expect_tx" => (
                place(self, body, 0)?,
                MbarrierAction::Expect {
                    bytes: self.src(body, p.operand(1)?, Ty::B32)?,
                },
            ),
            "complete_tx" => (
                place(self, body, 0)?,
                MbarrierAction::Complete {
                    bytes: self.src(body, p.operand(1)?, Ty::B32)?,
                },
            ),
            // A token holds the count in a field of its own.
            "pending_count" => {
                let (shift, bits) = Mbarrier::PENDING;
                let reg = Reg {
                    slot: self.dst(body, p.operand(0)?, Ty::B32)?,
                    wide: false,
                };
                let src = self.src_any(body, p.operand(1)?, Ty::B64)?;
                let parts = vec![Piece { reg, shift, bits }];
                return Ok(Op::Alu(Alu::Unpack { src, parts }));
            }
            "arrive" | "arrive_drop" => {
                // Without a token the first operand is the address.
                let named = !matches!(p.operand(0)?, Operand::Address(_));
                let state = match p.operand(0)? {
                    Operand::Address(_) | Operand::Sink => None,
                    operand => Some(self.dst(body, operand, Ty::B64)?),
                };
                let at = usize::from(named);
                let place = place(self, body, at)?;
                let value = match p.instruction.operands.get(at + 1) {
                    Some(operand) => Some(self.src(body, operand, Ty::B32)?),
                    None => None,
                };
                let expects = p.has("expect_tx");
                (
                    place,
                    MbarrierAction::Arrive {
                        count: value.filter(|_| !expects),
                        expects: value.filter(|_| expects),
                        state,
                        drops: verb == "arrive_drop",
                        never_last: p.has("noComplete"),
                    },
                )
            }
            "try_wait" | "test_wait" => {
                let dst = self.dst_pred(body, p.operand(0)?)?;
                let place = place(self, body, 1)?;
                let phase = if p.has("parity") {
                    PhaseOf::Parity(self.src(body, p.operand(2)?, Ty::B32)?)
                } else {
                    PhaseOf::Token(self.src(body, p.operand(2)?, Ty::B64)?)
                };
                (
                    place,
                    MbarrierAction::Wait {
                        dst,
                        phase,
                        suspends: verb == "try_wait",
                    },
                )
            }
            _ => return Err(p.unknown()),
        };
        Ok(asynchronous(AsyncOp::Mbarrier(Mbarrier { place, action })))
    }

    /// `cp.async…`, `cp.reduce.async…`.
    pub(super) fn copy(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if p.has("commit_group") {
            return Ok(asynchronous(if p.has("bulk") {
                AsyncOp::BulkCommit
            } else {
                AsyncOp::CopyCommit
            }));
        }
        if p.has("wait_group") {
            let pending = number(p.operand(0)?).ok_or_else(|| p.unknown())?;
            return Ok(asynchronous(if p.has("bulk") {
                AsyncOp::BulkWait { pending }
            } else {
                AsyncOp::CopyWait {
                    pending: Some(pending),
                }
            }));
        }
        if p.has("wait_all") {
            return Ok(asynchronous(AsyncOp::CopyWait { pending: None }));
        }
        if p.has("prefetch") {
            return Ok(Op::Nothing);
        }
        if p.has("bulk") {
            return self.bulk(body, p);
        }
        if p.has("mbarrier") {
            return Ok(asynchronous(AsyncOp::CopyArrive {
                place: self.shared_place(body, p.operand(0)?, p.space())?,
                counted: p.has("noinc"),
            }));
        }
        let dst = self.shared_place(body, p.operand(0)?, Space::Shared)?;
        let (address, _) = self.address(body, p.operand(1)?)?;
        let bytes = match number(p.operand(2)?) {
            Some(bytes @ (4 | 8 | 16)) => bytes as u8,
            _ => return Err(p.unknown()),
        };
        let (mut taken, mut ignored) = (None, None);
        let hinted = p.has("L2::cache_hint");
        let extra = p.instruction.operands.get(3..).unwrap_or_default();
        let extra = &extra[..extra.len().saturating_sub(usize::from(hinted))];
        if let Some(operand) = extra.first() {
            let predicate = match operand {
                Operand::Name(_) | Operand::Not(_) => self.pred(body, operand).ok(),
                _ => None,
            };
            match predicate {
                Some(pred) => ignored = Some(pred),
                None => taken = Some(self.src(body, operand, Ty::B32)?),
            }
        }
        Ok(asynchronous(AsyncOp::Copy(Copy {
            dst,
            src: SourcePlace { address },
            bytes,
            taken,
            ignored,
        })))
    }

    fn bulk(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if p.any(&["im2col", "im2col_no_offs", "gather4", "scatter4", "cp_mask"]) {
            return Err(p.unknown());
        }
        // The first state space named is where the bytes go.
        let mut spaces = (p.instruction.modifiers.iter())
            .filter_map(|m| Some((m.split("::").next()?, m.as_str())))
            .filter(|(space, _)| matches!(*space, "shared" | "global"))
            .map(|(space, _)| space);
        match (spaces.next(), spaces.next()) {
            // A reduction goes from shared memory to shared memory, and names its type.
            (Some("shared"), Some(from)) if !p.has("reduce") || from == "shared" => {
                let dst = self.shared_place(body, p.operand(0)?, Space::Shared)?;
                let (src, next) = if from == "shared" {
                    let (address, _) = self.address(body, p.operand(1)?)?;
                    let bytes = self.src(body, p.operand(2)?, Ty::B32)?;
                    (BulkPlace::Shared { address, bytes }, 3)
                } else if p.has("tensor") {
                    (self.tensor(body, p, 1)?, 2)
                } else {
                    let (address, _) = self.address(body, p.operand(1)?)?;
                    let bytes = self.src(body, p.operand(2)?, Ty::B32)?;
                    (BulkPlace::Global { address, bytes }, 3)
                };
                let reduce = if p.has("reduce") {
                    let BulkReduce { op, ty } = self.reduction(p)?;
                    Some((op, ty.ok_or_else(|| p.unknown())?))
                } else {
                    None
                };
                let mbarrier = self.shared_place(body, p.operand(next)?, Space::Shared)?;
                let multicast = if p.has("multicast::cluster") {
                    Some(self.src(body, p.operand(next + 1)?, Ty::B32)?)
                } else {
                    None
                };
                Ok(asynchronous(AsyncOp::BulkLoad(BulkLoad {
                    dst,
                    src,
                    mbarrier,
                    multicast,
                    reduce,
                })))
            }
            (Some("global"), Some("shared")) => {
                let src = self.shared_place(body, p.operand(1)?, Space::Shared)?;
                let dst = if p.has("tensor") {
                    self.tensor(body, p, 0)?
                } else {
                    let (address, _) = self.address(body, p.operand(0)?)?;
                    let bytes = self.src(body, p.operand(2)?, Ty::B32)?;
                    BulkPlace::Global { address, bytes }
                };
                let reduce = if p.has("reduce") {
                    Some(self.reduction(p)?)
                } else {
                    None
                };
                Ok(asynchronous(AsyncOp::BulkStore(BulkStore {
                    src,
                    dst,
                    reduce,
                })))
            }
            _ => Err(p.unknown()),
        }
    }

    fn tensor(&mut self, body: &mut Body, p: Parts, at: usize) -> Result<BulkPlace, String> {
        let rank = (p.instruction.modifiers.iter()).find_map(|m| match m.as_str() {
            "1d" => Some(1),
            "2d" => Some(2),
            "3d" => Some(3),
            "4d" => Some(4),
            "5d" => Some(5),
            _ => None,
        });
        let (map, coordinates) = self.coordinates(body, p.operand(at)?)?;
        if rank != Some(coordinates.len()) {
            return Err(format!(
                "`{}` with {} coordinates",
                p.instruction.mnemonic(),
                coordinates.len()
            ));
        }
        let mut slots: Vec<Slot> = Vec::new();
        for operand in coordinates {
            slots.push(self.src(body, operand, Ty::B32)?);
        }
        Ok(BulkPlace::Tensor { map, at: slots })
    }

    fn reduction(&mut self, p: Parts) -> Result<BulkReduce, String> {
        let op = (p.instruction.modifiers.iter())
            .find_map(|m| {
                Some(match m.as_str() {
                    "add" => AtomOp::Add,
                    "min" => AtomOp::Min,
                    "max" => AtomOp::Max,
                    "inc" => AtomOp::Inc,
                    "dec" => AtomOp::Dec,
                    "and" => AtomOp::And,
                    "or" => AtomOp::Or,
                    "xor" => AtomOp::Xor,
                    _ => return None,
                })
            })
            .ok_or_else(|| p.unknown())?;
        let ty = match p.types().last() {
            None => None,
            Some(ty) => Some(atom_type(ty).ok_or_else(|| p.unknown())?),
        };
        Ok(BulkReduce { op, ty })
    }

    pub(super) fn fence(&mut self, p: Parts) -> Decoded {
        if p.any(&["mbarrier_init"]) {
            return Ok(asynchronous(AsyncOp::MbarrierFence));
        }
        let proxy = (p.instruction.modifiers.iter()).any(|m| m.starts_with("proxy"));
        let asynchronous_proxy = p
            .instruction
            .modifiers
            .iter()
            .any(|m| m == "async" || m.starts_with("async::") || m == "proxy::async");
        if proxy && asynchronous_proxy {
            return Ok(asynchronous(AsyncOp::ProxyFence));
        }
        Ok(Op::Fence)
    }

    pub(super) fn set_registers(&mut self, p: Parts) -> Decoded {
        let count = number(p.operand(0)?).ok_or_else(|| p.unknown())?;
        if !(24..=256).contains(&count) || !count.is_multiple_of(8) {
            return Err(format!(
                "`{}` {count}: 24 to 256 in steps of 8",
                p.instruction.mnemonic()
            ));
        }
        Ok(asynchronous(AsyncOp::SetRegisters {
            count,
            more: p.has("inc"),
        }))
    }

    pub(super) fn map_shared(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        Ok(asynchronous(AsyncOp::MapShared {
            generic: p.space() == Space::Generic,
            dst: self.dst_any(body, p.operand(0)?, ty)?,
            a: self.src_any(body, p.operand(1)?, ty)?,
            rank: self.src(body, p.operand(2)?, Ty::B32)?,
        }))
    }

    /// `getctarank`
    pub(super) fn rank_of(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let generic = p.space() == Space::Generic;
        let wide = p.types().last().is_some_and(Ty::wide);
        // The type is that of the address: the rank is always 32 bits wide.
        let of = if wide { Ty::B64 } else { Ty::B32 };
        Ok(asynchronous(AsyncOp::RankOf {
            generic,
            dst: self.dst(body, p.operand(0)?, Ty::B32)?,
            a: self.src_any(body, p.operand(1)?, of)?,
        }))
    }

    /// `st.async`
    pub(super) fn send(&mut self, body: &mut Body, p: Parts) -> Decoded {
        self.sent(body, p, None)
    }

    /// `red.async`
    pub(super) fn send_reduction(&mut self, body: &mut Body, p: Parts, op: AtomOp) -> Decoded {
        let ty = atom_type(p.ty()?).ok_or_else(|| p.unknown())?;
        self.sent(body, p, Some((op, ty)))
    }

    fn sent(&mut self, body: &mut Body, p: Parts, reduce: Option<(AtomOp, AtomType)>) -> Decoded {
        let ty = p.ty()?;
        let values = match p.operand(1)? {
            Operand::Vector(items) => items.as_slice(),
            other => std::slice::from_ref(other),
        };
        if ty.bits < 32
            || ty.bits > 64
            || !p.has("mbarrier::complete_tx::bytes")
            || !matches!(values.len(), 1 | 2 | 4)
        {
            return Err(p.unknown());
        }
        let dst = self.shared_place(body, p.operand(0)?, Space::Shared)?;
        let mut regs = Vec::with_capacity(values.len());
        for value in values {
            regs.push(self.src_any(body, value, ty)?);
        }
        Ok(asynchronous(AsyncOp::Send(Send {
            dst,
            mbarrier: self.shared_place(body, p.operand(2)?, Space::Shared)?,
            bytes: ty.bits / 8,
            regs,
            reduce,
        })))
    }

    pub(super) fn cluster_barrier(&mut self, p: Parts) -> Decoded {
        Ok(asynchronous(if p.has("arrive") {
            AsyncOp::ClusterArrive
        } else if p.has("wait") {
            AsyncOp::ClusterWait
        } else {
            return Err(p.unknown());
        }))
    }

    pub(super) fn shared_place(
        &mut self,
        body: &mut Body,
        operand: &Operand,
        space: Space,
    ) -> Result<SharedPlace, String> {
        let (address, _) = self.address(body, operand)?;
        Ok(SharedPlace { space, address })
    }
}

fn asynchronous(op: AsyncOp) -> Op {
    Op::Async(Box::new(op))
}

fn number(operand: &Operand) -> Option<u32> {
    match operand {
        Operand::Immediate(Immediate::Int(value)) => u32::try_from(*value).ok(),
        _ => None,
    }
}
