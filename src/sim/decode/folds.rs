//! What the assembler leaves of arithmetic, as its machine code shows: nothing of what nobody reads, of what only
//! constants make, and of what the same basic block computed before; and a product that only sums of its block
//! read, all free to be rounded once with it, becomes part of them. Nothing here changes what a kernel does: it says
//! what its work counts for.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::sim::liveness::{Block, wanted_after};
use crate::sim::op::{Alu, Depends, FloatOp, Fold, Instr, Op};

/// A value: its number within a basic block.
type Value = usize;

/// What becomes of each instruction. Those of functions, which begin at `functions`, all stay: what they give back
/// is read elsewhere.
pub(super) fn folds(
    code: &[Instr],
    depends: &[Depends],
    mnemonics: &[String],
    functions: usize,
) -> Vec<Fold> {
    let mut folds = vec![Fold::Kept; code.len()];
    let (code, depends) = (&code[..functions], &depends[..functions]);
    let all = Kernel {
        code,
        depends,
        mnemonics,
    };
    let counts =
        |instr: &Instr| matches!(&instr.op, Op::Alu(alu) if !matches!(alu, Alu::Carry { .. }));
    if !code.iter().any(counts) {
        return folds;
    }
    let blocks = all.blocks();
    let step_back = |pc: usize, live: &mut HashSet<u32>| {
        all.step_back(pc, live);
    };
    for (block, live) in std::iter::zip(&blocks, wanted_after(&blocks, step_back)) {
        all.fold(block, live, &mut folds);
    }
    folds
}

struct Kernel<'a> {
    code: &'a [Instr],
    depends: &'a [Depends],
    mnemonics: &'a [String],
}

/// A product that sums may take in.
struct Factor {
    pc: usize,
    /// Sums that read it.
    sums: usize,
    /// Something else reads it too.
    escapes: bool,
    taken: usize,
}

impl Factor {
    fn of(pc: usize) -> Self {
        Self {
            pc,
            sums: 0,
            escapes: false,
            taken: 0,
        }
    }
}

impl Kernel<'_> {
    fn blocks(&self) -> Vec<Block> {
        let mut starts = BTreeSet::from([0, self.code.len()]);
        for (pc, instr) in self.code.iter().enumerate() {
            let targets = instr.sends_to();
            if targets.is_some() || matches!(instr.op, Op::Call(_)) {
                starts.insert(pc + 1);
            }
            starts.extend(targets.into_iter().flatten().map(|pc| *pc as usize));
        }
        let starts: Vec<usize> = starts.range(..=self.code.len()).copied().collect();
        let pcs = starts.windows(2).map(|pair| pair[0]..pair[1]);
        pcs.map(|pcs| Block::new(self.code, pcs)).collect()
    }

    /// What is live before an instruction, from what is live after it: what only reaches what nobody reads is not. Tells
    /// whether it is needed at all.
    fn step_back(&self, pc: usize, live: &mut HashSet<u32>) -> bool {
        let (instr, depends) = (&self.code[pc], &self.depends[pc]);
        let needed = !self.pure(pc) || depends.writes.iter().any(|r| live.contains(r));
        if !needed {
            return false;
        }
        match &instr.op {
            Op::Alu(_)
            | Op::Load(_)
            | Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Redux { .. }
            | Op::Mma { .. }
            | Op::MmaDouble { .. }
                if instr.guard.is_none() =>
            {
                for register in &depends.writes {
                    live.remove(register);
                }
            }
            // Accumulators are read as well as written, and addresses are written as the lists have it.
            Op::Async(_) => live.extend(&depends.writes),
            _ => {}
        }
        live.extend(&depends.reads);
        true
    }

    /// Nothing but its results matters.
    fn pure(&self, pc: usize) -> bool {
        match &self.code[pc].op {
            Op::Alu(Alu::Carry { .. }) => false,
            Op::Alu(_) => !self.depends[pc].writes.is_empty(),
            Op::Load(_) => !self
                .mnemonic(pc)
                .split('.')
                .any(|part| matches!(part, "volatile" | "relaxed" | "acquire" | "mmio")),
            _ => false,
        }
    }

    fn fold(&self, block: &Block, live: HashSet<u32>, folds: &mut [Fold]) {
        let mut after = live.clone();
        for pc in block.pcs.clone().rev() {
            if !self.step_back(pc, &mut after) {
                folds[pc] = Fold::Gone;
            }
        }
        let mut values = Values::default();
        let mut factors: HashMap<Value, Factor> = HashMap::new();
        // A product with its sign changed stands for it.
        let mut negated: HashMap<Value, Value> = HashMap::new();
        let mut sums = Vec::new();
        for pc in block.pcs.clone() {
            if folds[pc] == Fold::Gone {
                continue;
            }
            let depends = &self.depends[pc];
            let mut reads: Vec<Value> = depends.reads.iter().map(|&r| values.of(r)).collect();
            if self.code[pc].guard.is_some() {
                // What was there may stay.
                reads.extend(depends.writes.iter().map(|&r| values.of(r)));
            }
            let origins = reads
                .iter()
                .map(|value| *negated.get(value).unwrap_or(value));
            let origins: Vec<Value> = origins.collect();
            let expression = depends
                .expression
                .filter(|_| self.pure(pc) && self.code[pc].guard.is_none());
            let Some(expression) = expression else {
                escape(&mut factors, &origins);
                values.overwrite(depends, &self.code[pc].op);
                continue;
            };
            if let Op::Alu(Alu::Move32 { .. } | Alu::Move64 { .. }) = self.code[pc].op
                && let ([to], [value]) = (depends.writes.as_slice(), reads.as_slice())
            {
                values.held.insert(*to, *value);
                continue;
            }
            if let (Some(operand), [to]) = (depends.kept, depends.writes.as_slice()) {
                let value = values.of(operand);
                values.held.insert(*to, value);
                folds[pc] = Fold::Gone;
                continue;
            }
            if let Op::Load(_) = self.code[pc].op {
                reads.push(values.memory);
            }
            if self.commutes(pc) && reads.len() > 1 {
                reads[..2].sort_unstable();
            }
            let constant = depends.literal && reads.iter().all(|v| values.constants.contains(v));
            let (results, known) = values.compute(expression, reads, depends, constant);
            if known || constant {
                folds[pc] = Fold::Gone;
            } else if self.is_sum(pc) && !matches!(origins.as_slice(), [a, b] if a == b) {
                for value in &origins {
                    if let Some(factor) = factors.get_mut(value) {
                        factor.sums += 1;
                    }
                }
                sums.push((pc, origins));
            } else if self.mnemonic(pc).starts_with("neg.")
                && let [value] = origins.as_slice()
                && factors.contains_key(value)
            {
                negated.insert(results[0], *value);
            } else {
                escape(&mut factors, &origins);
                if self.is_product(pc) {
                    factors.insert(results[0], Factor::of(pc));
                }
            }
        }
        let held: Vec<Value> = live.into_iter().map(|r| values.of(r)).collect();
        let origins = held
            .iter()
            .map(|value| *negated.get(value).unwrap_or(value));
        escape(&mut factors, &origins.collect::<Vec<_>>());
        for (pc, of) in sums {
            let free = of
                .iter()
                .find(|value| factors.get(value).is_some_and(|f| !f.escapes));
            if let Some(factor) = free.and_then(|value| factors.get_mut(value)) {
                factor.taken += 1;
                folds[pc] = Fold::Fused;
            }
        }
        for factor in factors.values() {
            if factor.taken > 0 && factor.taken == factor.sums {
                folds[factor.pc] = Fold::Gone;
            }
        }
    }

    /// An addition or a subtraction that may be rounded together with a product.
    fn is_sum(&self, pc: usize) -> bool {
        let sums = match &self.code[pc].op {
            Op::Alu(Alu::FAdd { .. }) => true,
            Op::Alu(Alu::Float { op, .. } | Alu::Packed { op, .. }) => {
                matches!(op, FloatOp::Add | FloatOp::Sub)
            }
            _ => false,
        };
        sums && self.free(pc)
    }

    fn is_product(&self, pc: usize) -> bool {
        let products = match &self.code[pc].op {
            Op::Alu(Alu::FMul { .. }) => true,
            Op::Alu(Alu::Float { op, .. } | Alu::Packed { op, .. }) => *op == FloatOp::Mul,
            _ => false,
        };
        products && self.free(pc)
    }

    /// No rounding of its own is asked for.
    fn free(&self, pc: usize) -> bool {
        let mut parts = self.mnemonic(pc).split('.');
        !parts.any(|part| matches!(part, "rn" | "rz" | "rm" | "rp" | "sat"))
    }

    /// The first two operands may change places.
    fn commutes(&self, pc: usize) -> bool {
        let opcode = self.mnemonic(pc).split('.').next().unwrap_or_default();
        matches!(
            opcode,
            "add" | "mul" | "fma" | "mad" | "min" | "max" | "and" | "or" | "xor"
        )
    }

    fn mnemonic(&self, pc: usize) -> &str {
        &self.mnemonics[usize::from(self.code[pc].mnemonic)]
    }
}

/// Something but sums reads these values.
fn escape(factors: &mut HashMap<Value, Factor>, values: &[Value]) {
    for value in values {
        if let Some(factor) = factors.get_mut(value) {
            factor.escapes = true;
        }
    }
}

/// The values of a basic block.
#[derive(Default)]
struct Values {
    count: Value,
    held: HashMap<u32, Value>,
    constants: HashSet<Value>,
    /// What memory holds, as a whole.
    memory: Value,
    computed: HashMap<(u32, Vec<Value>), Vec<Value>>,
}

impl Values {
    fn fresh(&mut self) -> Value {
        self.count += 1;
        self.count
    }

    fn of(&mut self, register: u32) -> Value {
        if let Some(&value) = self.held.get(&register) {
            return value;
        }
        let value = self.fresh();
        self.held.insert(register, value);
        value
    }

    /// The results of an instruction, and whether they were computed before.
    fn compute(
        &mut self,
        expression: u32,
        reads: Vec<Value>,
        depends: &Depends,
        constant: bool,
    ) -> (Vec<Value>, bool) {
        let before = self.computed.get(&(expression, reads.clone())).cloned();
        let known = before.is_some();
        let results =
            before.unwrap_or_else(|| depends.writes.iter().map(|_| self.fresh()).collect());
        if constant {
            self.constants.extend(&results);
        }
        for (&register, &value) in std::iter::zip(&depends.writes, &results) {
            self.held.insert(register, value);
        }
        self.computed.insert((expression, reads), results.clone());
        (results, known)
    }

    /// Whatever an instruction may write holds something new.
    fn overwrite(&mut self, depends: &Depends, op: &Op) {
        // Of these the lists do not tell results from operands.
        let more = match op {
            Op::Barrier(_) | Op::Call(_) | Op::Async(_) => depends.reads.as_slice(),
            _ => &[],
        };
        let reads_only = matches!(op, Op::Load(_) | Op::Alu(_) | Op::Branch { .. });
        if !reads_only {
            self.memory = self.fresh();
        }
        for &register in depends.writes.iter().chain(more) {
            let value = self.fresh();
            self.held.insert(register, value);
        }
    }
}
