//! Branches, calls and barriers.

use super::super::operand::{Ty, show};
use super::super::symbols::Symbol;
use super::super::{Body, Decoder, Place};
use super::Decoded;
use super::parts::Parts;
use crate::ptx::ir::Operand;
use crate::sim::op::{Barrier, BarrierKind, Call, Op, Passed};

impl Decoder<'_> {
    /// A label's number; `resolve_labels` turns it into a program counter.
    pub(super) fn label(&mut self, body: &Body, operand: &Operand) -> Result<u32, String> {
        match operand {
            Operand::Name(name) => match body.lookup(name) {
                Some(Symbol::Label(id)) => Ok(id as u32),
                _ => Err(format!("no label `{name}` in scope")),
            },
            other => Err(format!("`{}` is no label", show(other))),
        }
    }

    pub(super) fn indexed_branch(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let index = self.src(body, p.operand(0)?, Ty::B32)?;
        let Operand::Name(table) = p.operand(1)? else {
            return Err(p.unknown());
        };
        let names = body
            .tables
            .get(table)
            .cloned()
            .ok_or_else(|| format!("no branch table `{table}` before here"))?;
        let mut targets = Vec::new();
        for name in names {
            targets.push(self.label(body, &Operand::Name(name))?);
        }
        Ok(Op::BranchIndexed { index, targets })
    }

    pub(super) fn call(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let operands = &p.instruction.operands;
        let (results, name, arguments): (&[Operand], &Operand, &[Operand]) =
            match operands.as_slice() {
                [Operand::Tuple(r), name, Operand::Tuple(a), ..] => (r, name, a),
                [name, Operand::Tuple(a), ..] => (&[], name, a),
                [Operand::Tuple(r), name, ..] => (r, name, &[]),
                [name, ..] => (&[], name, &[]),
                [] => return Err(p.unknown()),
            };
        let Operand::Name(name) = name else {
            return Err(p.unknown());
        };
        let Some(function) = self.find(name) else {
            return Err(format!(
                "the simulator does not know calls through `{name}`: no such function in the module"
            ));
        };
        let index = self.declare(function);
        let (takes, gives) = (
            self.functions[index].arguments.clone(),
            self.functions[index].results.clone(),
        );
        if takes.len() != arguments.len() || gives.len() != results.len() {
            return Err(format!(
                "`{name}` takes {} arguments and gives {} results",
                takes.len(),
                gives.len()
            ));
        }
        let mut passed = Vec::new();
        for (operand, place) in arguments.iter().zip(&takes) {
            passed.push(self.passed(body, operand, place, true)?);
        }
        let mut returned = Vec::new();
        for (operand, place) in results.iter().zip(&gives) {
            returned.push(self.passed(body, operand, place, false)?);
        }
        Ok(Op::Call(Box::new(Call {
            function: index,
            arguments: passed,
            results: returned,
        })))
    }

    pub(super) fn barrier(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if p.has("cluster") {
            return self.cluster_barrier(p);
        }
        if p.has("warp") {
            return Ok(Op::WarpSync {
                members: self.src(body, p.operand(0)?, Ty::B32)?,
            });
        }
        let aligned = p.instruction.opcode == "bar" || p.has("aligned");
        let kind = if p.has("arrive") {
            BarrierKind::Arrive
        } else if p.has("popc") {
            BarrierKind::Popc
        } else if p.has("and") {
            BarrierKind::And
        } else if p.has("or") {
            BarrierKind::Or
        } else if p.has("sync") {
            BarrierKind::Sync
        } else {
            return Err(p.unknown());
        };
        match kind {
            BarrierKind::Sync | BarrierKind::Arrive => {
                let id = self.src(body, p.operand(0)?, Ty::B32)?;
                let threads = match p.instruction.operands.get(1) {
                    Some(operand) => Some(self.src(body, operand, Ty::B32)?),
                    None => None,
                };
                Ok(Op::Barrier(Box::new(Barrier {
                    kind,
                    id,
                    threads,
                    aligned,
                    input: None,
                    dst: None,
                })))
            }
            BarrierKind::Popc | BarrierKind::And | BarrierKind::Or => {
                let dst = if kind == BarrierKind::Popc {
                    self.dst(body, p.operand(0)?, Ty::B32)?
                } else {
                    self.dst_pred(body, p.operand(0)?)?
                };
                let id = self.src(body, p.operand(1)?, Ty::B32)?;
                let threads = if p.len() > 3 {
                    Some(self.src(body, p.operand(2)?, Ty::B32)?)
                } else {
                    None
                };
                let input = Some(self.pred(body, p.operand(p.len() - 1)?)?);
                Ok(Op::Barrier(Box::new(Barrier {
                    kind,
                    id,
                    threads,
                    aligned,
                    input,
                    dst: Some(dst),
                })))
            }
        }
    }

    /// How one argument travels; for results the callee's place is the source.
    fn passed(
        &mut self,
        body: &mut Body,
        operand: &Operand,
        place: &Place,
        forth: bool,
    ) -> Result<Passed, String> {
        match place {
            Place::Stack { offset, bytes } => match operand {
                Operand::Name(name) => match self.symbol(body, name) {
                    Some(Symbol::Stack { offset: here, .. }) => {
                        let (from, to) = if forth {
                            (here, *offset)
                        } else {
                            (*offset, here)
                        };
                        Ok(Passed::Stack {
                            from,
                            to,
                            bytes: *bytes,
                        })
                    }
                    _ => Err(format!("`{name}` is no .param variable of this function")),
                },
                other => Err(format!("`{}` cannot be passed through .param", show(other))),
            },
            Place::Register(reg) => {
                let ty = if reg.wide { Ty::B64 } else { Ty::B32 };
                let (from, to) = if forth {
                    (self.src_any(body, operand, ty)?, *reg)
                } else {
                    (*reg, self.dst_any(body, operand, ty)?)
                };
                if from.wide == to.wide {
                    Ok(Passed::Register { from, to })
                } else {
                    Err(format!(
                        "`{}` has not the width of the parameter",
                        show(operand)
                    ))
                }
            }
            Place::Predicate(slot) => {
                let here = self.pred(body, operand)?;
                if here.negated {
                    return Err(format!("`{}` cannot be passed", show(operand)));
                }
                let (from, to) = if forth {
                    (here.slot, *slot)
                } else {
                    (*slot, here.slot)
                };
                Ok(Passed::Predicate { from, to })
            }
        }
    }
}
