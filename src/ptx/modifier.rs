//! What kind of thing a modifier says. ptxas takes modifiers of different kinds in nearly any order; among
//! those of one kind the order carries meaning (`cvt.rn.f32.s32`, `mma….row.col`, two state spaces of a
//! copy). A modifier it does not know counts as part of the operation's name.

use super::ir::Instruction;

/// Kinds of modifier, in canonical order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `async`, `bulk`, `lo`, `wide`, comparisons, and everything unknown.
    Operation,
    /// `sync`, `aligned`, `uni`.
    Convergence,
    /// `relaxed`, `acquire`, `volatile`, …
    Ordering,
    /// `cta`, `cluster`, `gpu`, `sys`.
    Scope,
    /// `global`, `shared::cta`, `param`, …
    Space,
    /// `ca`, `nc`, `L1::no_allocate`, `L2::128B`, …
    Cache,
    /// `rn`, `rzi`, …
    Rounding,
    /// `ftz`, `sat`, `approx`, `full`, …
    Precision,
    /// `m16n8k16`, `x4`, `trans`.
    Shape,
    /// `row`, `col`.
    Layout,
    /// `v2`, `v4`, `v8`.
    Vector,
    /// `f32`, `b64`, `bf16x2`, `e4m3`, …
    Type,
}

/// What kind of thing `modifier` (without its dot) says.
pub(super) fn kind(modifier: &str) -> Kind {
    match modifier {
        "sync" | "aligned" | "uni" | "noinc" => Kind::Convergence,
        "weak" | "volatile" | "relaxed" | "acquire" | "release" | "acq_rel" | "sc" | "mmio" => {
            Kind::Ordering
        }
        "cta" | "cluster" | "gpu" | "sys" => Kind::Scope,
        "global" | "shared" | "local" | "param" | "const" | "reg" => Kind::Space,
        _ if modifier.starts_with("shared::") || modifier.starts_with("param::") => Kind::Space,
        "ca" | "cg" | "cs" | "cv" | "wb" | "wt" | "lu" | "nc" => Kind::Cache,
        _ if modifier.starts_with("L1::") || modifier.starts_with("L2::") => Kind::Cache,
        "rn" | "rz" | "rm" | "rp" | "rna" | "rs" | "rni" | "rzi" | "rmi" | "rpi" => Kind::Rounding,
        "ftz" | "noftz" | "sat" | "satfinite" | "relu" | "approx" | "full" => Kind::Precision,
        "row" | "col" => Kind::Layout,
        "trans" => Kind::Shape,
        "v2" | "v4" | "v8" => Kind::Vector,
        "pred" => Kind::Type,
        _ if is_type(modifier) => Kind::Type,
        _ if is_shape(modifier) => Kind::Shape,
        _ => Kind::Operation,
    }
}

/// The modifiers in canonical order. Those of one kind stay in their own order, unless it cannot matter.
pub(super) fn sorted(instruction: &Instruction) -> Vec<&str> {
    let free = |kind| match kind {
        Kind::Convergence | Kind::Precision => true,
        Kind::Cache => instruction.opcode != "createpolicy",
        Kind::Operation | Kind::Ordering | Kind::Scope | Kind::Space | Kind::Rounding => false,
        Kind::Shape | Kind::Layout | Kind::Vector | Kind::Type => false,
    };
    let mut modifiers: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
    modifiers.sort_by_key(|modifier| {
        let kind = match (instruction.opcode.as_str(), *modifier) {
            // `barrier.cluster.arrive.release`: which barrier, not a scope.
            ("barrier", "cluster" | "cta") => Kind::Operation,
            (_, modifier) => kind(modifier),
        };
        (kind, free(kind).then_some(*modifier))
    });
    modifiers
}

/// The instruction's types, in order.
pub(super) fn types(instruction: &Instruction) -> impl Iterator<Item = &str> {
    (instruction.modifiers.iter().map(String::as_str)).filter(|m| kind(m) == Kind::Type)
}

/// `f32`, `b128`, `s8`, `bf16x2`, `tf32`, `e4m3`, `e5m2x2`, `ue8m0x2`.
fn is_type(modifier: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let scalar = match modifier.split_once('x') {
        Some((scalar, count)) if digits(count) => scalar,
        Some(_) => return false,
        None => modifier,
    };
    let exponent = scalar.strip_prefix("ue").or(scalar.strip_prefix('e'));
    if let Some((exponent, mantissa)) = exponent.and_then(|e| e.split_once('m')) {
        return digits(exponent) && digits(mantissa);
    }
    ["bf", "tf", "b", "u", "s", "f"]
        .iter()
        .any(|prefix| scalar.strip_prefix(prefix).is_some_and(digits))
}

/// `m16n8k16`, `m8n8`, `x4`.
fn is_shape(modifier: &str) -> bool {
    let known = |c: char| c.is_ascii_digit() || matches!(c, 'm' | 'n' | 'k');
    let dimensions = modifier.starts_with('m') && modifier.chars().all(known);
    let repeats = modifier
        .strip_prefix('x')
        .is_some_and(|n| n.parse::<u8>().is_ok());
    dimensions && modifier.len() > 2 || repeats
}
