//! What a launch did, instruction by instruction. Facts only; the cost model draws the conclusions.

use serde::{Deserialize, Serialize};

use super::float::Format;
use super::op::{Alu, AsyncOp, AtomOp, AtomType, FloatOp, FloatUnary, Op, Operands, Pc, Program};

/// Counters of one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LineCounts {
    /// Executions by warps.
    pub warps: u64,
    /// Executions by threads (guard and divergence counted).
    pub threads: u64,
    /// Global requests by warps.
    pub requests: u64,
    /// 32-byte sectors of global requests.
    pub sectors: u64,
    /// 128-byte lines of global requests.
    pub lines: u64,
    /// Sectors that the first-level cache did not hold, where it was modelled; else all.
    pub missed_sectors: u64,
    /// Sectors that a store covered only in part.
    pub partial_sectors: u64,
    /// Bytes that threads asked for.
    pub bytes: u64,
    /// Shared-memory wavefronts.
    pub wavefronts: u64,
    /// Wavefronts that conflict-free addresses would take.
    pub ideal_wavefronts: u64,
    /// Lanes of atomics.
    pub atomic_lanes: u64,
    /// Most lanes of one request on one address, summed over requests.
    pub atomic_serial: u64,
    /// Sectors of local memory.
    pub local_sectors: u64,
    /// Bytes that bulk copies moved between global and shared memory.
    pub bulk_bytes: u64,
}

/// Counters of a launch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// By instruction, in the program's order.
    pub by_pc: Vec<LineCounts>,
    /// Blocks that ran.
    pub blocks: u64,
    /// Executed warp instructions of the longest warp of each block, summed over blocks.
    pub longest_warp: u64,
    /// Warp instructions executed.
    pub instructions: u64,
    /// Barriers completed.
    pub barriers: u64,
    /// Executions of global atomics by address, the most of any one.
    pub hottest_atomic: u64,
}

/// Floating-point work by unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlopCounts {
    /// f32 on the CUDA cores.
    pub fp32: f64,
    /// f64.
    pub fp64: f64,
    /// f16 and bf16.
    pub fp16: f64,
    /// Reciprocals, roots, powers, logarithms and the like, by the special-function unit.
    pub special: f64,
    /// bf16 on tensor cores.
    pub tensor_bf16: f64,
    /// f16 on tensor cores.
    pub tensor_fp16: f64,
    /// e4m3 and e5m2 on tensor cores.
    pub tensor_fp8: f64,
    /// tf32 on tensor cores.
    pub tensor_tf32: f64,
    /// 8-bit integers on tensor cores.
    pub tensor_int8: f64,
}

impl FlopCounts {
    /// Every unit that did something, as diagnoses and audits name it, with its work.
    pub fn by_unit(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [
            ("fp32", self.fp32),
            ("fp16", self.fp16),
            ("fp64", self.fp64),
            ("special functions", self.special),
            ("tensor bf16", self.tensor_bf16),
            ("tensor fp16", self.tensor_fp16),
            ("tensor fp8", self.tensor_fp8),
            ("tensor tf32", self.tensor_tf32),
            ("tensor int8", self.tensor_int8),
        ]
        .into_iter()
        .filter(|(_, work)| *work > 0.0)
    }

    /// Adds `scale` times the work of `other`.
    pub fn add(&mut self, other: &Self, scale: f64) {
        self.fp32 += scale * other.fp32;
        self.fp16 += scale * other.fp16;
        self.special += scale * other.special;
        self.fp64 += scale * other.fp64;
        self.tensor_bf16 += scale * other.tensor_bf16;
        self.tensor_fp16 += scale * other.tensor_fp16;
        self.tensor_fp8 += scale * other.tensor_fp8;
        self.tensor_tf32 += scale * other.tensor_tf32;
        self.tensor_int8 += scale * other.tensor_int8;
    }
}

impl Counts {
    pub(crate) fn new(program: &Program) -> Self {
        Self {
            by_pc: vec![LineCounts::default(); program.code.len()],
            ..Self::default()
        }
    }

    /// Adds another run of the same program.
    pub fn add(&mut self, other: &Self) {
        for (a, b) in self.by_pc.iter_mut().zip(&other.by_pc) {
            a.warps += b.warps;
            a.threads += b.threads;
            a.requests += b.requests;
            a.sectors += b.sectors;
            a.lines += b.lines;
            a.missed_sectors += b.missed_sectors;
            a.partial_sectors += b.partial_sectors;
            a.bytes += b.bytes;
            a.wavefronts += b.wavefronts;
            a.ideal_wavefronts += b.ideal_wavefronts;
            a.atomic_lanes += b.atomic_lanes;
            a.atomic_serial += b.atomic_serial;
            a.local_sectors += b.local_sectors;
            a.bulk_bytes += b.bulk_bytes;
        }
        self.blocks += other.blocks;
        self.longest_warp += other.longest_warp;
        self.instructions += other.instructions;
        self.barriers += other.barriers;
        self.hottest_atomic = self.hottest_atomic.max(other.hottest_atomic);
    }

    /// Additions, multiplications and fused multiply-adds (2) by unit, and special functions. Minima,
    /// comparisons and conversions are no FLOPs.
    pub fn flops(&self, program: &Program) -> FlopCounts {
        let mut out = FlopCounts::default();
        for (counts, instr) in self.by_pc.iter().zip(&program.code) {
            let product = match &instr.op {
                Op::Mma { product, .. } => Some((product.a_type, product.flops())),
                Op::Async(op) => match op.as_ref() {
                    AsyncOp::Product(product) => Some((product.a_type, product.flops())),
                    _ => None,
                },
                _ => None,
            };
            if let Op::MmaDouble { product, .. } = &instr.op {
                out.fp64 += counts.warps as f64 * product.flops();
                continue;
            }
            if let Some((ty, flops)) = product {
                let work = counts.warps as f64 * flops;
                match ty {
                    Operands::F16 => out.tensor_fp16 += work,
                    Operands::Bf16 => out.tensor_bf16 += work,
                    Operands::E4m3 | Operands::E5m2 => out.tensor_fp8 += work,
                    Operands::Tf32 => out.tensor_tf32 += work,
                    Operands::S8 | Operands::U8 => out.tensor_int8 += work,
                }
                continue;
            }
            let Some((format, each)) = flops_of(&instr.op) else {
                continue;
            };
            let work = counts.threads as f64 * each;
            let special = matches!(
                instr.op,
                Op::Alu(Alu::FloatUnary { .. } | Alu::PackedUnary { .. })
            );
            match format {
                Format::F32 | Format::F16 | Format::Bf16 if special => out.special += work,
                Format::F32 => out.fp32 += work,
                Format::F64 => out.fp64 += work,
                Format::F16 | Format::Bf16 => out.fp16 += work,
            }
        }
        out
    }

    /// Warp executions by full mnemonic, in order of first appearance.
    pub fn executed(&self, program: &Program) -> Vec<(String, u64)> {
        let mut sums = vec![0; program.mnemonics.len()];
        for (counts, instr) in self.by_pc.iter().zip(&program.code) {
            sums[usize::from(instr.mnemonic)] += counts.warps;
        }
        program
            .mnemonics
            .iter()
            .cloned()
            .zip(sums)
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    /// Counters summed by line of the text, only lines that ran.
    pub fn by_line(&self, program: &Program) -> Vec<(u32, LineCounts)> {
        let mut out: Vec<(u32, LineCounts)> = (0..self.by_pc.len())
            .filter(|&pc| self.by_pc[pc].warps > 0)
            .map(|pc| (program.line(pc as Pc), self.by_pc[pc]))
            .collect();
        out.sort_by_key(|(line, _)| *line);
        out
    }
}

/// Floating-point operations of one thread's execution.
pub(crate) fn flops_of(op: &Op) -> Option<(Format, f64)> {
    // An addition in memory is an addition.
    if let Op::Atomic(atom) = op
        && atom.op == AtomOp::Add
    {
        let adds = 1.0 + atom.further.len() as f64;
        return match atom.ty {
            AtomType::Float(format) => Some((format, adds)),
            AtomType::Pair(format) => Some((format, 2.0 * adds)),
            AtomType::Int { .. } => None,
        };
    }
    let Op::Alu(alu) = op else { return None };
    let arithmetic = |op: FloatOp| match op {
        FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Div => 1.0,
        FloatOp::Min | FloatOp::Max | FloatOp::MinNan | FloatOp::MaxNan => 0.0,
    };
    let function = |op: FloatUnary| match op {
        FloatUnary::Neg | FloatUnary::Abs => 0.0,
        FloatUnary::Rcp
        | FloatUnary::Sqrt
        | FloatUnary::Rsqrt
        | FloatUnary::Ex2
        | FloatUnary::Lg2
        | FloatUnary::Sin
        | FloatUnary::Cos
        | FloatUnary::Tanh => 1.0,
    };
    match *alu {
        Alu::FAdd { .. } | Alu::FMul { .. } => Some((Format::F32, 1.0)),
        Alu::FFma { .. } => Some((Format::F32, 2.0)),
        Alu::Float { format, op, .. } => Some((format, arithmetic(op))),
        Alu::FloatFma { format, .. } => Some((format, 2.0)),
        Alu::FloatUnary { format, op, .. } => Some((format, function(op))),
        Alu::Packed { format, op, .. } => Some((format, 2.0 * arithmetic(op))),
        Alu::PackedFma { format, .. } => Some((format, 4.0)),
        Alu::PackedUnary { format, op, .. } => Some((format, 2.0 * function(op))),
        Alu::Int { .. }
        | Alu::AddSat { .. }
        | Alu::IntUnary { .. }
        | Alu::BitQuery { .. }
        | Alu::MulWide { .. }
        | Alu::MadWide { .. }
        | Alu::Mad { .. }
        | Alu::Mul24 { .. }
        | Alu::Sad { .. }
        | Alu::Carry { .. }
        | Alu::Bfe { .. }
        | Alu::Bfi { .. }
        | Alu::Fns { .. }
        | Alu::Prmt { .. }
        | Alu::Lop3 { .. }
        | Alu::Shf { .. }
        | Alu::Dp4a { .. }
        | Alu::Dp2a { .. }
        | Alu::Copysign { .. }
        | Alu::Testp { .. }
        | Alu::Setp { .. }
        | Alu::Set { .. }
        | Alu::Selp { .. }
        | Alu::Slct { .. }
        | Alu::PredLogic { .. }
        | Alu::PredMove { .. }
        | Alu::Move32 { .. }
        | Alu::Move64 { .. }
        | Alu::Pack { .. }
        | Alu::Unpack { .. }
        | Alu::Convert { .. }
        | Alu::ConvertPacked { .. }
        | Alu::ToSmall { .. }
        | Alu::FromSmall { .. }
        | Alu::ToTf32 { .. }
        | Alu::PackSaturated { .. }
        | Alu::Cvta { .. }
        | Alu::Isspacep { .. } => None,
    }
}
