//! Mechanical rewrites: edits that an expert makes by habit and that keep what a kernel computes. Each
//! leaves a constant open as a knob whose default gives the parent's code, byte for byte, so that a rewrite
//! can only widen a space. They are edits of the source's text; where a rewrite cannot be sure, it proposes
//! nothing.

mod header;
mod load_cache;
mod register_cap;

use super::{Proposal, ProposalRequest, ProposeError, Proposer};
use crate::llm::Tally;
use crate::source::{KnobValue, Setting, Source};

/// The proposer `rewrites`: request k of a node gets the k-th rewrite that applies to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rewrites;

type Rewrite = fn(&ProposalRequest<'_>) -> Option<Proposal>;

/// In the order in which they are tried.
const REWRITES: [Rewrite; 2] = [load_cache::propose, register_cap::propose];

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
        let mut applicable = REWRITES.iter().filter_map(|rewrite| rewrite(request));
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
