//! An instruction's modifiers and operands, read by name; what they make together is not for here.

use super::super::operand::{Kind, Ty};
use crate::ptx::ir::{Instruction, Operand};
use crate::sim::float::Rounding;
use crate::sim::op::{Combine, Compare, CompareType, FloatMode, FusedClamp, Space};

/// An instruction's modifiers and operands, with the usual questions.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub instruction: &'a Instruction,
}

impl<'a> Parts<'a> {
    pub(super) fn has(self, modifier: &str) -> bool {
        self.instruction.has(modifier)
    }

    pub(super) fn any(self, modifiers: &[&str]) -> bool {
        modifiers.iter().any(|m| self.has(m))
    }

    pub(super) fn types(self) -> impl Iterator<Item = Ty> + 'a {
        self.instruction
            .modifiers
            .iter()
            .filter_map(|m| Ty::parse(m))
    }

    /// The last type among the modifiers: the instruction's, or a conversion's source.
    pub(super) fn ty(self) -> Result<Ty, String> {
        self.types().last().ok_or_else(|| self.unknown())
    }

    pub(super) fn operand(self, index: usize) -> Result<&'a Operand, String> {
        self.instruction
            .operands
            .get(index)
            .ok_or_else(|| format!("`{}` needs more operands", self.instruction.mnemonic()))
    }

    pub(super) fn len(self) -> usize {
        self.instruction.operands.len()
    }

    pub(super) fn unknown(self) -> String {
        format!(
            "the simulator does not know `{}`",
            self.instruction.mnemonic()
        )
    }

    pub(super) fn rounding(self) -> Option<Rounding> {
        self.instruction.modifiers.iter().find_map(|m| {
            Some(match m.as_str() {
                "rn" | "rni" => Rounding::NearestEven,
                "rna" => Rounding::NearestAway,
                "rz" | "rzi" => Rounding::Zero,
                "rm" | "rmi" => Rounding::Down,
                "rp" | "rpi" => Rounding::Up,
                _ => return None,
            })
        })
    }

    pub(super) fn mode(self) -> FloatMode {
        FloatMode {
            rounding: self.rounding().unwrap_or(Rounding::NearestEven),
            ftz: self.has("ftz"),
            sat: self.has("sat"),
        }
    }

    pub(super) fn fused_clamp(self) -> FusedClamp {
        FusedClamp {
            relu: self.has("relu"),
            outside: self.has("oob"),
        }
    }

    pub(super) fn space(self) -> Space {
        self.instruction
            .modifiers
            .iter()
            .find_map(|m| {
                Some(match m.split("::").next().unwrap_or(m) {
                    "global" => Space::Global,
                    "shared" => Space::Shared,
                    "local" => Space::Local,
                    "const" => Space::Const,
                    "param" => Space::Param,
                    _ => return None,
                })
            })
            .unwrap_or(Space::Generic)
    }

    pub(super) fn compare(self) -> Result<Compare, String> {
        self.instruction
            .modifiers
            .iter()
            .find_map(|m| {
                Some(match m.as_str() {
                    "eq" => Compare::Eq,
                    "ne" => Compare::Ne,
                    "lt" | "lo" => Compare::Lt,
                    "le" | "ls" => Compare::Le,
                    "gt" | "hi" => Compare::Gt,
                    "ge" | "hs" => Compare::Ge,
                    "equ" => Compare::Equ,
                    "neu" => Compare::Neu,
                    "ltu" => Compare::Ltu,
                    "leu" => Compare::Leu,
                    "gtu" => Compare::Gtu,
                    "geu" => Compare::Geu,
                    "num" => Compare::Num,
                    "nan" => Compare::Nan,
                    _ => return None,
                })
            })
            .ok_or_else(|| self.unknown())
    }

    pub(super) fn compare_type(self, ty: Ty) -> Result<CompareType, String> {
        Ok(match ty.kind {
            Kind::Float(format) => CompareType::Float {
                format,
                ftz: self.has("ftz"),
            },
            // `lo`, `ls`, `hi`, `hs` are unsigned whatever the type says.
            Kind::Bits | Kind::Unsigned | Kind::Signed => CompareType::Int {
                width: ty.width(),
                signed: ty.signed() && !self.any(&["lo", "ls", "hi", "hs"]),
            },
            Kind::Packed(_) | Kind::Predicate => return Err(self.unknown()),
        })
    }

    pub(super) fn combine(self) -> Option<Combine> {
        if self.has("and") {
            Some(Combine::And)
        } else if self.has("or") {
            Some(Combine::Or)
        } else if self.has("xor") {
            Some(Combine::Xor)
        } else {
            None
        }
    }
}
