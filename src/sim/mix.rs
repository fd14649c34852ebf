//! What each instruction costs once assembled: issue slots, the pipe it keeps busy, and, for loads, how many
//! others are under way at the same time. Read from the PTX alone: a simple view of what the assembler's
//! scheduler does inside a basic block.

use std::collections::{BTreeSet, HashMap};

use super::cost::Limits;
use super::float::Format;
use super::op::{
    Access, Alu, AsyncOp, CvtType, FloatOp, FloatUnary, IntOp, Mma, Op, Program, Space, Width,
};

/// Instructions that a branch skips, at most, where the assembler puts them under its condition instead.
const MOST_PREDICATED: usize = 7;

/// Most loads that registers allow in flight.
pub(super) const MOST_LOADS: f64 = 16.0;

/// Independent instructions that schedules find for a warp, at most.
pub(super) const MOST_PARALLEL: f64 = 4.0;

/// Share of the tensor cores' rate that `mma` reaches where they are made for larger products.
const MMA_SHARE: f64 = 0.62;

/// An arithmetic pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipe {
    Fp32,
    Int,
    Fp64,
    Half,
    /// Special functions and conversions.
    Special,
    /// Products of small matrices.
    Tensor,
}

impl Pipe {
    pub const COUNT: usize = 6;
    pub const ALL: [Self; Self::COUNT] = [
        Self::Fp32,
        Self::Int,
        Self::Fp64,
        Self::Half,
        Self::Special,
        Self::Tensor,
    ];

    /// Results per SM and cycle.
    pub fn lanes(self, limits: &Limits) -> f64 {
        match self {
            Self::Fp32 | Self::Half => limits.fp32_lanes,
            Self::Int => 64.0,
            Self::Fp64 => limits.fp64_lanes,
            Self::Special => 16.0,
            // A warp-wide `mma` is 32 of them.
            Self::Tensor => 32.0 * limits.tensor_flops / Mma::FLOPS * MMA_SHARE,
        }
    }
}

/// One instruction's cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Machine instructions it becomes.
    pub slots: f64,
    pub pipe: Option<Pipe>,
    pub pipe_uses: f64,
    /// Instructions of its basic block that can run at the same time, on average.
    pub parallel: f64,
    /// Loads under way together with this one, itself included; 0 for what is no load.
    pub overlapped: f64,
    /// Number of the first of them: they are waited for together.
    pub group: usize,
}

/// Costs of a program's instructions, in order.
pub(crate) fn mix(program: &Program) -> Vec<Mix> {
    let mut out: Vec<Mix> = program.code.iter().map(|instr| cost(&instr.op)).collect();
    for block in basic_blocks(program) {
        let parallel = parallelism(program, &out, block.clone());
        for mix in &mut out[block.clone()] {
            mix.parallel = parallel;
        }
        group_loads(program, &mut out, block);
    }
    out
}

/// What is scheduled together: from one branch or target of a branch to the next, short branches left out.
pub(super) fn basic_blocks(program: &Program) -> Vec<std::ops::Range<usize>> {
    let mut starts: BTreeSet<usize> = program.functions.iter().map(|f| f.entry as usize).collect();
    for (pc, instr) in program.code.iter().enumerate() {
        match &instr.op {
            Op::Branch { target } if is_predicated(program, pc, *target as usize) => {}
            Op::Branch { target } => {
                starts.extend([*target as usize, pc + 1]);
            }
            Op::BranchIndexed { targets, .. } => {
                starts.extend(targets.iter().map(|t| *t as usize));
                starts.insert(pc + 1);
            }
            Op::Return | Op::Exit | Op::Call(_) | Op::Trap => {
                starts.insert(pc + 1);
            }
            _ => {}
        }
    }
    starts.insert(program.code.len());
    let starts: Vec<usize> = starts.into_iter().collect();
    starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Whether the assembler puts what a branch skips under its condition, and drops the branch.
fn is_predicated(program: &Program, pc: usize, target: usize) -> bool {
    let skipped = pc + 1..target;
    program.code[pc].guard.is_some()
        && target > pc
        && skipped.len() <= MOST_PREDICATED
        && program.code[skipped].iter().all(|instr| {
            !matches!(
                instr.op,
                Op::Branch { .. }
                    | Op::BranchIndexed { .. }
                    | Op::Call(_)
                    | Op::Return
                    | Op::Exit
                    | Op::Trap
                    | Op::Barrier(_)
                    | Op::WarpSync { .. }
                    | Op::Async(_)
            )
        })
}

/// Instructions ÷ the longest chain of dependent ones.
fn parallelism(program: &Program, mix: &[Mix], block: std::ops::Range<usize>) -> f64 {
    let mut ready: HashMap<u32, f64> = HashMap::new();
    let (mut longest, mut sum) = (0.0f64, 0.0);
    for pc in block {
        let depends = &program.depends[pc];
        let start = depends
            .reads
            .iter()
            .filter_map(|r| ready.get(r))
            .fold(0.0f64, |a, &b| a.max(b));
        let end = start + mix[pc].slots;
        sum += mix[pc].slots;
        longest = longest.max(end);
        for &register in &depends.writes {
            ready.insert(register, end);
        }
    }
    if longest > 0.0 { sum / longest } else { 1.0 }
}

/// Loads of a basic block overlap unless one's address depends on another, or a barrier or a store that
/// may alias stands between.
fn group_loads(program: &Program, mix: &mut [Mix], block: std::ops::Range<usize>) {
    let mut group: Vec<usize> = Vec::new();
    let mut tainted: BTreeSet<u32> = BTreeSet::new();
    let close = |group: &mut Vec<usize>, tainted: &mut BTreeSet<u32>, mix: &mut [Mix]| {
        for &pc in group.iter() {
            mix[pc].overlapped = (group.len() as f64).min(MOST_LOADS);
            mix[pc].group = group[0];
        }
        group.clear();
        tainted.clear();
    };
    for pc in block {
        let depends = &program.depends[pc];
        let waits = depends.reads.iter().any(|r| tainted.contains(r));
        match &program.code[pc].op {
            Op::Load(access) if counted(access) => {
                if waits {
                    close(&mut group, &mut tainted, mix);
                }
                group.push(pc);
                tainted.extend(&depends.writes);
            }
            Op::Barrier(_) | Op::Atomic(_) => close(&mut group, &mut tainted, mix),
            // It waits for those loads, and no later one passes it that may be from its place.
            Op::Store(access) if counted(access) => {
                if waits && group.iter().any(|&pc| may_alias(program, pc, access)) {
                    close(&mut group, &mut tainted, mix);
                }
            }
            Op::Alu(_)
            | Op::StackAddress { .. }
            | Op::ReadClock { .. }
            | Op::Load(_)
            | Op::Store(_)
            | Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Match { .. }
            | Op::Redux { .. }
            | Op::Mma { .. }
            | Op::MmaDouble { .. }
            | Op::Transpose { .. }
            | Op::Elect { .. }
            | Op::Activemask { .. }
            | Op::Branch { .. }
            | Op::BranchIndexed { .. }
            | Op::Call(_)
            | Op::Return
            | Op::Exit
            | Op::Trap
            | Op::WarpSync { .. }
            | Op::Fence
            | Op::MoveMatrix(_)
            | Op::Async(_)
            | Op::Nothing => {
                if waits {
                    tainted.extend(&depends.writes);
                }
            }
        }
    }
    close(&mut group, &mut tainted, mix);
}

/// Whether a load may be from where the store goes: not where it says that nobody writes there.
fn may_alias(program: &Program, load: usize, store: &Access) -> bool {
    let instr = &program.code[load];
    let Op::Load(access) = &instr.op else {
        return false;
    };
    let mnemonic = &program.mnemonics[usize::from(instr.mnemonic)];
    let same = access.space == store.space || [access.space, store.space].contains(&Space::Generic);
    same && !mnemonic.split('.').any(|part| part == "nc")
}

fn counted(access: &Access) -> bool {
    matches!(
        access.space,
        Space::Global | Space::Generic | Space::Shared | Space::Local
    ) && !access.private
}

fn cost(op: &Op) -> Mix {
    let (slots, pipe, pipe_uses) = match op {
        Op::Alu(alu) => arithmetic(alu),
        // Parameters are read from the constant bank by whoever uses them.
        Op::Load(access) if !counted(access) => (0.0, None, 0.0),
        Op::Load(access) | Op::Store(access) => {
            let vectors = (f64::from(access.bytes) * f64::from(access.count) / 16.0)
                .ceil()
                .max(1.0);
            (vectors, None, 0.0)
        }
        Op::Atomic(_) => (1.0, None, 0.0),
        Op::Shfl { .. } | Op::Vote { .. } | Op::Match { .. } | Op::Elect { .. } => {
            (1.0, Some(Pipe::Special), 0.5)
        }
        Op::Redux { .. } => (1.0, Some(Pipe::Special), 1.0),
        Op::Transpose { .. } => (1.0, Some(Pipe::Special), 0.5),
        Op::Mma { product, .. } => {
            // Rates go by bytes, not by elements.
            let bytes = product.a_type.bytes() as f64 / 2.0;
            let share = product.flops() / Mma::FLOPS * bytes;
            (1.0, Some(Pipe::Tensor), share)
        }
        Op::MmaDouble { product, .. } => {
            (1.0, Some(Pipe::Tensor), product.flops() / Mma::FLOPS * 16.0)
        }
        Op::Activemask { .. } | Op::ReadClock { .. } => (1.0, None, 0.0),
        Op::Branch { .. } | Op::Exit | Op::Return => (1.0, None, 0.0),
        Op::BranchIndexed { .. } | Op::Call(_) => (4.0, None, 0.0),
        Op::Barrier(_) => (2.0, None, 0.0),
        Op::WarpSync { .. } => (1.0, None, 0.0),
        Op::Fence => (4.0, None, 0.0),
        Op::MoveMatrix(_) => (1.0, None, 0.0),
        Op::Async(op) => match op.as_ref() {
            AsyncOp::Product(product) => {
                let bytes = product.a_type.bytes() as f64 / 2.0;
                let share = product.flops() / Mma::FLOPS * bytes * MMA_SHARE;
                (1.0, Some(Pipe::Tensor), share)
            }
            AsyncOp::Mbarrier(_)
            | AsyncOp::BulkLoad(_)
            | AsyncOp::BulkStore(_)
            | AsyncOp::Copy(_)
            | AsyncOp::CopyArrive { .. }
            | AsyncOp::ProxyFence
            | AsyncOp::MbarrierFence
            | AsyncOp::MapShared { .. }
            | AsyncOp::RankOf { .. }
            | AsyncOp::Send(_)
            | AsyncOp::SetRegisters { .. }
            | AsyncOp::ClusterArrive
            | AsyncOp::ClusterWait => (1.0, None, 0.0),
            AsyncOp::BulkCommit
            | AsyncOp::BulkWait { .. }
            | AsyncOp::CopyCommit
            | AsyncOp::CopyWait { .. }
            | AsyncOp::ProductFence
            | AsyncOp::ProductCommit
            | AsyncOp::ProductWait { .. } => (1.0, None, 0.0),
        },
        Op::StackAddress { .. } | Op::Trap | Op::Nothing => (0.0, None, 0.0),
    };
    Mix {
        slots,
        pipe,
        pipe_uses,
        parallel: 1.0,
        overlapped: 0.0,
        group: 0,
    }
}

fn arithmetic(alu: &Alu) -> (f64, Option<Pipe>, f64) {
    let int = |n: f64| (n, Some(Pipe::Int), n);
    // Products of integers go through the fp32 pipe, at half its rate.
    let product = |n: f64| (n, Some(Pipe::Fp32), 2.0 * n);
    let float = |format: Format, n: f64| {
        let pipe = match format {
            Format::F32 => Pipe::Fp32,
            Format::F64 => Pipe::Fp64,
            Format::F16 | Format::Bf16 => Pipe::Half,
        };
        (n, Some(pipe), n)
    };
    match *alu {
        Alu::Int { width, op, .. } => match (op, width) {
            (IntOp::Div | IntOp::Rem, Width::B64) => int(70.0),
            (IntOp::Div | IntOp::Rem, _) => int(20.0),
            (IntOp::MulLo | IntOp::MulHi, Width::B64) => product(4.0),
            (IntOp::MulLo | IntOp::MulHi, Width::B16 | Width::B32) => product(1.0),
            (_, Width::B64) => int(2.0),
            (_, Width::B16 | Width::B32) => int(1.0),
        },
        Alu::AddSat { .. } => int(1.0),
        Alu::Mul24 { .. }
        | Alu::Mad {
            width: Width::B16 | Width::B32,
            ..
        } => product(1.0),
        Alu::Mad {
            width: Width::B64, ..
        } => product(4.0),
        Alu::MulWide { .. } | Alu::MadWide { .. } => product(1.0),
        Alu::Beside { .. } | Alu::Mask { .. } => int(1.0),
        Alu::IntUnary { .. } | Alu::Sad { .. } | Alu::Bfe { .. } | Alu::Bfi { .. } => int(1.0),
        Alu::BitQuery { .. } => (1.0, Some(Pipe::Special), 1.0),
        Alu::Carry { .. } | Alu::Prmt { .. } | Alu::Lop3 { .. } | Alu::Shf { .. } => int(1.0),
        Alu::Dp4a { .. } | Alu::Dp2a { .. } => int(1.0),
        Alu::Fns { .. } => int(20.0),
        Alu::FAdd { .. } | Alu::FMul { .. } | Alu::FFma { .. } => float(Format::F32, 1.0),
        Alu::Float { format, op, .. } => match op {
            FloatOp::Div => float(format, 9.0),
            FloatOp::Min
            | FloatOp::Max
            | FloatOp::MinNan
            | FloatOp::MaxNan
            | FloatOp::MinXorsign
            | FloatOp::MaxXorsign
            | FloatOp::MinNanXorsign
            | FloatOp::MaxNanXorsign => int(1.0),
            FloatOp::Add | FloatOp::Sub | FloatOp::Mul => float(format, 1.0),
        },
        Alu::FloatFma { format, .. } => float(format, 1.0),
        Alu::FloatUnary { format, op, .. } => match op {
            FloatUnary::Neg | FloatUnary::Abs => (0.0, None, 0.0),
            FloatUnary::Rcp
            | FloatUnary::Sqrt
            | FloatUnary::Rsqrt
            | FloatUnary::Ex2
            | FloatUnary::Lg2
            | FloatUnary::Sin
            | FloatUnary::Cos
            | FloatUnary::Tanh => match format {
                Format::F64 => float(Format::F64, 12.0),
                Format::F16 | Format::Bf16 | Format::F32 => (2.0, Some(Pipe::Special), 1.0),
            },
        },
        Alu::Packed { format, .. } | Alu::PackedFma { format, .. } => float(format, 1.0),
        Alu::PackedUnary { .. } => (2.0, Some(Pipe::Special), 2.0),
        Alu::Copysign { .. }
        | Alu::Testp { .. }
        | Alu::SetpPacked { .. }
        | Alu::SetPacked { .. }
        | Alu::Set { .. }
        | Alu::Selp { .. }
        | Alu::Slct { .. } => int(1.0),
        Alu::Setp { .. } => int(1.0),
        // Folded into the instructions that use them.
        Alu::PredLogic { .. } | Alu::PredMove { .. } => (0.5, None, 0.0),
        Alu::Move32 { .. }
        | Alu::Move64 { .. }
        | Alu::Move128 { .. }
        | Alu::Pack { .. }
        | Alu::Unpack { .. }
        | Alu::Cvta { .. } => (0.0, None, 0.0),
        Alu::Convert { cvt, .. } => match (cvt.from, cvt.to) {
            // A wider register of zeros beside it, or a half left out.
            (
                CvtType::Int {
                    bits: 32,
                    signed: false,
                },
                CvtType::Int { bits: 64, .. },
            )
            | (CvtType::Int { bits: 64, .. }, CvtType::Int { bits: 32, .. })
                if !cvt.sat =>
            {
                (0.0, None, 0.0)
            }
            (CvtType::Int { .. }, CvtType::Int { .. })
            | (CvtType::Float(Format::F32), CvtType::Float(Format::F16 | Format::Bf16))
            | (CvtType::Float(Format::Bf16), CvtType::Float(Format::F32)) => int(1.0),
            (CvtType::Float(Format::F16), CvtType::Float(Format::F32)) => float(Format::F16, 1.0),
            (CvtType::Int { .. } | CvtType::Float(_), CvtType::Int { .. } | CvtType::Float(_)) => {
                (1.0, Some(Pipe::Special), 1.0)
            }
        },
        Alu::ConvertPacked { .. } => int(1.0),
        Alu::ToSmall { .. }
        | Alu::FromSmall { .. }
        | Alu::PackSaturated { .. }
        | Alu::ToTf32 { .. } => (1.0, Some(Pipe::Special), 1.0),
        Alu::Isspacep { .. } => int(1.0),
    }
}
