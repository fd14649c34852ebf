//! Blocks that stand for a grid, side by side on the host's cores.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::sim::{self, Launch, Memory, Options, Outcome, Program};
use crate::turns::{Helpers, in_turn};

/// Runs the blocks that stand for a grid, side by side where there are helpers; a grid that none stand for runs as a
/// whole. Each begins on memory as it is now, so that what they do is the same however many cores there are, and has
/// an equal share of the budget. What they wrote is in memory afterwards.
pub(super) fn apart(
    program: &Program,
    memory: &mut Memory,
    launch: &Launch,
    options: &Options,
    helpers: Option<&Helpers>,
) -> Outcome {
    let Some(mut blocks) = options.blocks.clone() else {
        return sim::launch(program, memory, launch, options);
    };
    let mut clusters = HashSet::new();
    blocks.retain(|block| clusters.insert(launch.cluster_of(*block)));
    let run = |turn: usize| {
        let mut own = memory.clone();
        let options = Options {
            blocks: Some(vec![blocks[turn]]),
            budget: options.budget / blocks.len() as u64,
            ..options.clone()
        };
        let outcome = sim::launch(program, &mut own, launch, &options);
        (outcome, own)
    };
    let stopped = |(outcome, _): &(Outcome, Memory)| outcome.stop.is_some();
    let mut ran = Vec::with_capacity(blocks.len());
    let look = |ended| {
        let stop = stopped(&ended);
        ran.push(ended);
        if stop {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let _ = match helpers {
        Some(helpers) => helpers.run(blocks.len(), run, stopped, look),
        None => in_turn(blocks.len(), run, look),
    };
    let outcomes = ran.into_iter().map(|(outcome, own)| {
        memory.join(own);
        outcome
    });
    let all = outcomes.reduce(|mut all, more| {
        all.add(more);
        all
    });
    all.unwrap_or_else(|| sim::launch(program, memory, launch, options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx;
    use crate::sim::Initial;

    /// Each thread adds its element to one sum of all, and to its block's; blocks of even numbers do it twice.
    const SUMS: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry sums(.param .u64 x, .param .u64 y) {
\t.reg .pred %even;
\t.reg .b32 %t, %b, %i, %bit;
\t.reg .f32 %v;
\t.reg .b64 %x, %y, %at, %own;
\tld.param.u64 %x, [x];
\tld.param.u64 %y, [y];
\tmov.u32 %t, %tid.x;
\tmov.u32 %b, %ctaid.x;
\tmad.lo.u32 %i, %b, 64, %t;
\tmad.wide.u32 %at, %i, 4, %x;
\tld.global.f32 %v, [%at];
\tmad.wide.u32 %own, %b, 4, %y;
\tand.b32 %bit, %b, 1;
\tsetp.eq.u32 %even, %bit, 0;
\tred.global.add.f32 [%y], %v;
\tred.global.add.f32 [%own+4], %v;
\t@%even red.global.add.f32 [%own+4], %v;
\tret;
}
";

    /// A thousand blocks, of which these stand for all.
    fn launched(cluster: [u32; 3], params: [u64; 2], blocks: &[u64]) -> (Launch, Options) {
        let launch = Launch {
            grid: [1024, 1, 1],
            block: [64, 1, 1],
            dynamic_shared: 0,
            cluster,
            params: params.map(u64::to_le_bytes).concat(),
            tensor_maps: Vec::new(),
        };
        let options = Options {
            checks: false,
            budget: 1 << 20,
            sm_count: 132,
            resident_blocks: 1056,
            blocks: Some(blocks.to_vec()),
            cache_bytes: Some(1 << 16),
            skip_products: true,
            registers: None,
            seed: 0,
        };
        (launch, options)
    }

    #[test]
    fn blocks_apart_do_what_they_do_together() {
        let module = ptx::parse(SUMS).unwrap();
        let program = sim::decode(&module, "sums").unwrap();
        let mut memory = sim::memory(&program);
        let ones = |_, out: &mut [u8]| {
            out.chunks_exact_mut(4)
                .for_each(|one| one.copy_from_slice(&1f32.to_le_bytes()));
        };
        let generated = Initial::Generated(std::sync::Arc::new(ones));
        let x = memory.add("x", 1 << 20, false, generated);
        let y = memory.add("y", 1 << 16, true, Initial::Zero);
        for (cluster, blocks) in [
            ([1; 3], [3, 257, 600, 900, 1023]),
            ([2, 1, 1], [3, 257, 256, 900, 1023]),
        ] {
            let (launch, options) = launched(cluster, [x, y], &blocks);
            let (mut one, mut other) = (memory.clone(), memory.clone());
            let together = sim::launch(&program, &mut one, &launch, &options);
            let helpers = Some(Helpers::of_host());
            let apart = apart(&program, &mut other, &launch, &options, helpers);
            assert!(together.stop.is_none() && apart.stop.is_none());
            assert_eq!(apart.counts.by_pc, together.counts.by_pc);
            assert_eq!(apart.counts, together.counts);
            assert_eq!(other.touched(), one.touched());
            // What blocks wrote where no other did.
            let [one, other] = [one, other].map(|mut memory| memory.contents(y).unwrap());
            assert!(other[32..] == one[32..]);
        }
    }

    #[test]
    fn a_block_that_faults_ends_them_all() {
        let module = ptx::parse(SUMS).unwrap();
        let program = sim::decode(&module, "sums").unwrap();
        let mut memory = sim::memory(&program);
        let x = memory.add("x", 256 * 100, false, Initial::Zero);
        let y = memory.add("y", 1 << 16, true, Initial::Zero);
        let (launch, options) = launched([1; 3], [x, y], &[3, 99, 100, 900]);
        let outcome = apart(&program, &mut memory, &launch, &options, None);
        assert!(matches!(outcome.stop, Some(sim::Stop::Fault(_))));
        assert_eq!(outcome.counts.blocks, 2);
    }
}
