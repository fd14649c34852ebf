//! Waits for older products first: where a wait ends several groups of wgmma, what needs only the older ones runs
//! between a wait for those and one for the rest, so that, say, a softmax of finished scores goes on under a product
//! that still runs. Groups end in order, and all those that are left running stand in the same block.

use std::collections::{BTreeMap, BTreeSet};

use super::asynchronous::{
    Reordered, begun, groups_before, independent, left_running, moved_before,
};
use super::change::{Change, Subject};
use super::kernel::Kernel;

/// Instructions that another wait is worth.
const FEWEST: usize = 4;

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let mut edits = Vec::new();
    let mut moved = 0;
    for kernel in subject.kernels() {
        let begun = begun(&kernel);
        let reachable = kernel.cfg.reachable();
        for (number, block) in kernel.cfg.blocks.iter().enumerate() {
            let mut order: Vec<usize> = block.instructions.clone().collect();
            let mut text = BTreeMap::new();
            for wait in block.instructions.clone().filter(|_| reachable[number]) {
                let Some(running) = left_running(kernel.instruction(wait)) else {
                    continue;
                };
                let Some(place) = order.iter().position(|index| *index == wait) else {
                    continue;
                };
                let Some(places) = earlier(&kernel, &order, place, running, begun[number]) else {
                    continue;
                };
                let first = order[places[0]];
                let own = subject.text(kernel.instruction(first).span);
                let older = running + 1;
                text.insert(
                    first,
                    format!("wgmma.wait_group.sync.aligned {older};\n    {own}"),
                );
                moved += places.len();
                order = moved_before(&order, place, &places);
            }
            edits.extend(Reordered { order, text }.edits(subject, &kernel));
        }
    }
    if moved == 0 {
        return Vec::new();
    }
    vec![Change {
        label: "waits for older products first".to_owned(),
        edits,
        rationale: format!(
            "{moved} instructions need only products that end before the last: they run while it still does."
        ),
    }]
}

/// The places of what may run while one more group does than the wait at `place` leaves running; `None` where nothing
/// there needs an older product.
fn earlier(
    kernel: &Kernel<'_>,
    order: &[usize],
    place: usize,
    running: usize,
    begun: bool,
) -> Option<Vec<usize>> {
    let groups = groups_before(kernel, order, place)?;
    // One that began before the block may have registers that are not seen in it.
    let whole = groups.len() - usize::from(begun && !groups.is_empty());
    let newest = groups[..whole].get(..=running)?;
    let untouchable: BTreeSet<&str> = newest.iter().flatten().copied().collect();
    let places = independent(kernel, order, place, &untouchable);
    let older = places.iter().any(|at| {
        let access = &kernel.access[order[*at]];
        let mut names = access.reads.iter().chain(&access.writes);
        names.any(|name| kernel.in_flight.contains(name))
    });
    (older && places.len() >= FEWEST).then_some(places)
}
