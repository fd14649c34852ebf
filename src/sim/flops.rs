//! Floating-point work as machine code does it, which is how Nsight Compute counts it: a division is the
//! multiply-adds that the assembler makes of it, a product that goes into a sum is part of a multiply-add, and what
//! nobody reads or what is there already costs nothing. What operands out of the usual range cost beyond is left out.

use super::counts::Counts;
use super::float::Format;
use super::op::{
    Alu, AsyncOp, AtomOp, AtomType, FloatOp, FloatUnary, Fold, Init, Op, Operands, Program, Slot,
    Special,
};

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

    fn add_arithmetic(&mut self, format: Format, work: f64) {
        match format {
            Format::F32 => self.fp32 += work,
            Format::F64 => self.fp64 += work,
            Format::F16 | Format::Bf16 => self.fp16 += work,
        }
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
    /// Additions, multiplications and fused multiply-adds (2) by unit, and special functions: as machine code has
    /// them. Minima, comparisons and conversions are no FLOPs.
    pub fn flops(&self, program: &Program) -> FlopCounts {
        let mut out = FlopCounts::default();
        let clusters = cluster_places(program);
        let instructions = self.by_pc.iter().zip(&program.code).zip(&program.folds);
        for ((counts, instr), fold) in instructions {
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
            let threads = counts.threads as f64;
            let mnemonic = &program.mnemonics[usize::from(instr.mnemonic)];
            match &instr.op {
                Op::Alu(Alu::Move32 { a, .. }) if clusters.contains(a) => out.fp32 += threads,
                Op::Alu(_) if *fold == Fold::Gone => {}
                Op::Alu(alu) => {
                    let (format, each) = arithmetic(alu, Variant::of(mnemonic));
                    let each = if *fold == Fold::Fused {
                        2.0 * each
                    } else {
                        each
                    };
                    out.add_arithmetic(format, threads * each);
                    out.special += threads * special(alu);
                }
                // An addition in memory is an addition.
                Op::Atomic(atom) if atom.op == AtomOp::Add => {
                    let adds = atom.values.len() as f64;
                    match atom.ty {
                        AtomType::Float(format) => out.add_arithmetic(format, threads * adds),
                        AtomType::Pair(format) => out.add_arithmetic(format, threads * 2.0 * adds),
                        AtomType::Int { .. } => {}
                    }
                }
                _ => {}
            }
        }
        out
    }
}

/// Where a thread finds its cluster's place in the grid, and its block's in the cluster: no register of the machine
/// holds them, and reading one multiplies once.
fn cluster_places(program: &Program) -> Vec<Slot> {
    let inits = program.functions.iter().flat_map(|function| &function.init);
    inits
        .filter(|(_, init)| {
            matches!(
                init,
                Init::Special(Special::Clusterid(_) | Special::ClusterCtaid(_))
            )
        })
        .map(|(reg, _)| reg.slot)
        .collect()
}

/// Which of an operation's expansions an instruction asks for.
#[derive(Clone, Copy)]
struct Variant {
    /// `.approx` or `.full`.
    approximate: bool,
    /// Subnormals are zeros.
    flushed: bool,
}

impl Variant {
    fn of(mnemonic: &str) -> Self {
        let has = |wanted: &[&str]| mnemonic.split('.').any(|part| wanted.contains(&part));
        Self {
            approximate: has(&["approx", "full"]),
            flushed: has(&["ftz"]),
        }
    }
}

/// Calls of the special-function unit by one thread's execution.
fn special(alu: &Alu) -> f64 {
    let calls = |op: FloatUnary| match op {
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
        Alu::FloatUnary {
            format: Format::F32 | Format::F16 | Format::Bf16,
            op,
            ..
        } => calls(op),
        Alu::PackedUnary { op, .. } => 2.0 * calls(op),
        _ => 0.0,
    }
}

/// Additions, multiplications and multiply-adds (2) of one thread's execution. Those of expansions are counted in
/// what ptxas 13.0 makes for sm_90, slow paths and guarded corrections left out.
fn arithmetic(alu: &Alu, variant: Variant) -> (Format, f64) {
    let operation = |format: Format, op: FloatOp| match op {
        FloatOp::Add | FloatOp::Sub | FloatOp::Mul => 1.0,
        FloatOp::Div => match format {
            // A reciprocal, improved by multiply-adds.
            Format::F64 => 15.0,
            Format::F32 | Format::F16 | Format::Bf16 if variant.approximate => 1.0,
            Format::F32 | Format::F16 | Format::Bf16 => 10.0,
        },
        FloatOp::Min
        | FloatOp::Max
        | FloatOp::MinNan
        | FloatOp::MaxNan
        | FloatOp::MinXorsign
        | FloatOp::MaxXorsign
        | FloatOp::MinNanXorsign
        | FloatOp::MaxNanXorsign => 0.0,
    };
    let function = |format: Format, op: FloatUnary| match (op, format) {
        (FloatUnary::Neg | FloatUnary::Abs, _) => 0.0,
        (FloatUnary::Rcp, Format::F64) => 10.0,
        (FloatUnary::Sqrt, Format::F64) => 13.0,
        // Scaled into range and back.
        (FloatUnary::Rcp, Format::F32) if variant.approximate && !variant.flushed => 2.0,
        (FloatUnary::Rcp, Format::F32) if !variant.approximate => 5.0,
        (FloatUnary::Sqrt, Format::F32) if !variant.approximate => 6.0,
        // The unit takes an angle in turns.
        (FloatUnary::Sin | FloatUnary::Cos, Format::F32) => 1.0,
        (
            FloatUnary::Rcp
            | FloatUnary::Sqrt
            | FloatUnary::Rsqrt
            | FloatUnary::Ex2
            | FloatUnary::Lg2
            | FloatUnary::Sin
            | FloatUnary::Cos
            | FloatUnary::Tanh,
            _,
        ) => 0.0,
    };
    match *alu {
        Alu::FAdd { .. } | Alu::FMul { .. } => (Format::F32, 1.0),
        Alu::FFma { .. } => (Format::F32, 2.0),
        Alu::Float { format, op, .. } => (format, operation(format, op)),
        Alu::FloatFma { format, .. } => (format, 2.0),
        Alu::FloatUnary { format, op, .. } => (format, function(format, op)),
        Alu::Packed { format, op, .. } => (format, 2.0 * operation(format, op)),
        Alu::PackedFma { format, .. } => (format, 4.0),
        Alu::PackedUnary { .. }
        | Alu::Int { .. }
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
        | Alu::Beside { .. }
        | Alu::Mask { .. }
        | Alu::Move128 { .. }
        | Alu::Prmt { .. }
        | Alu::Lop3 { .. }
        | Alu::Shf { .. }
        | Alu::Dp4a { .. }
        | Alu::Dp2a { .. }
        | Alu::Copysign { .. }
        | Alu::Testp { .. }
        | Alu::Setp { .. }
        | Alu::SetpPacked { .. }
        | Alu::SetPacked { .. }
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
        | Alu::Isspacep { .. } => (Format::F32, 0.0),
    }
}
