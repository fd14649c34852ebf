//! Mechanical rewrites: edits that an expert makes by habit and that keep what a kernel computes. Some open
//! a constant as a knob whose default gives the parent's code, byte for byte, so that they can only widen a
//! space; the others change the code, each in a way that is proved for every input, or do nothing. They work
//! on any PTX: where a rewrite cannot be sure, it proposes nothing.
//!
//! Not among them: fetching tiles into L2 four turns before TMA brings them. Products on wgmma took 2.1 to 3.2 times as
//! long with it ("tiles into L2" in traces/gemm_bf16*-h200.jsonl.gz).

mod asynchronous;
mod carried;
mod change;
mod contract;
mod counted;
mod dead_code;
mod fences;
mod header;
mod hoist;
mod kernel;
mod late_wait;
mod load_cache;
mod memory;
mod moved_registers;
mod multiples;
mod pad_shared;
mod predicate;
mod prefetch;
mod register_cap;
mod rename;
mod residency;
mod schedule;
mod split_wait;
mod store_cache;
mod strength;
mod try_wait;
mod unroll;
mod vectorise;
mod wait_depth;
mod wait_time;
mod written;

use super::{Proposal, ProposalRequest, ProposeError, Proposer};
use crate::llm::Tally;
use crate::source::{KnobValue, Setting, Source};
use change::Changes;

/// The proposer `rewrites`: request k of a node gets the k-th rewrite that applies to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rewrites;

/// How a rewrite works.
#[derive(Clone, Copy)]
enum Rewrite {
    /// It opens a constant of the source's text as a knob.
    Open(fn(&ProposalRequest<'_>) -> Option<Proposal>),
    /// It edits a rendering.
    Code(Changes),
}

/// In the order in which they are tried.
const REWRITES: [Rewrite; 20] = [
    Rewrite::Code(vectorise::changes),
    Rewrite::Code(pad_shared::changes),
    Rewrite::Code(predicate::changes),
    Rewrite::Code(hoist::changes),
    Rewrite::Code(split_wait::changes),
    Rewrite::Open(wait_time::propose),
    Rewrite::Code(fences::changes),
    Rewrite::Code(late_wait::changes),
    Rewrite::Code(unroll::changes),
    Rewrite::Code(prefetch::changes),
    Rewrite::Code(strength::changes),
    Rewrite::Code(contract::changes),
    Rewrite::Open(load_cache::propose),
    Rewrite::Open(store_cache::propose),
    Rewrite::Open(register_cap::propose),
    Rewrite::Open(residency::propose),
    Rewrite::Open(moved_registers::propose),
    Rewrite::Open(try_wait::propose),
    Rewrite::Open(wait_depth::propose),
    Rewrite::Code(dead_code::changes),
];

impl Proposer for Rewrites {
    fn name(&self) -> &str {
        "rewrites"
    }

    fn propose(
        &self,
        request: &ProposalRequest<'_>,
        _: &mut Tally,
    ) -> Result<Vec<Proposal>, ProposeError> {
        let turn = usize::try_from(request.attempt).unwrap_or(usize::MAX);
        let mut applicable = REWRITES.iter().flat_map(|rewrite| match rewrite {
            Rewrite::Open(open) => open(request).into_iter().collect(),
            Rewrite::Code(changes) => change::proposals(request, *changes),
        });
        Ok(applicable.nth(turn).into_iter().collect())
    }
}

/// The proposal of `text`, whose knob `knob` opens what was fixed; `None` if it is not a source that
/// renders by default as its parent does.
fn proposal(
    request: &ProposalRequest<'_>,
    label: &str,
    text: String,
    knob: &str,
    first: Vec<KnobValue>,
    rationale: String,
) -> Option<Proposal> {
    let child = Source::parse(&text).ok()?;
    let by_default = |source: &Source| {
        let point = source.space().default_point().ok()?;
        Some(source.render(&point).ok()?.ptx)
    };
    if by_default(&child)? != by_default(request.source)? {
        return None;
    }
    let space = child.space();
    let settings = first
        .into_iter()
        .filter_map(|value| {
            let mut setting: Setting = request.setting.clone().unwrap_or_default();
            setting.insert(knob.to_owned(), value);
            let point = space.point(&setting).ok()?;
            // It renders too: a cap beside a directive that excludes it does not.
            child.render(&point).ok()?;
            Some(space.setting(&point))
        })
        .collect();
    Some(Proposal {
        label: label.to_owned(),
        text: text.into(),
        settings,
        rationale: Some(rationale),
    })
}
