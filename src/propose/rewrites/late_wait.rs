//! Puts waits after what does not need them: arithmetic behind a wait for wgmma or for copies that touches nothing of
//! theirs runs in front of it, while the tensor cores or the copies work. Within a block; only instructions that
//! touch registers alone move, and none of a product's registers.

use std::collections::{BTreeMap, BTreeSet};

use super::asynchronous::{Reordered, independent, left_running, moved_before, waits_for_copies};
use super::change::{Change, Subject};

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let mut edits = Vec::new();
    let mut moved = 0;
    for kernel in subject.kernels() {
        for (block, reachable) in kernel.cfg.blocks.iter().zip(kernel.cfg.reachable()) {
            let mut order: Vec<usize> = block.instructions.clone().collect();
            for wait in block.instructions.clone().filter(|_| reachable) {
                let instruction = kernel.instruction(wait);
                let nothing = BTreeSet::new();
                let untouchable = match left_running(instruction) {
                    Some(_) => &kernel.in_flight,
                    None if waits_for_copies(instruction) => &nothing,
                    None => continue,
                };
                let Some(place) = order.iter().position(|index| *index == wait) else {
                    continue;
                };
                let places = independent(&kernel, &order, place, untouchable);
                moved += places.len();
                order = moved_before(&order, place, &places);
            }
            let text = BTreeMap::new();
            edits.extend(Reordered { order, text }.edits(subject, &kernel));
        }
    }
    if moved == 0 {
        return Vec::new();
    }
    vec![Change {
        label: "waits after independent work".to_owned(),
        edits,
        rationale: format!(
            "{moved} instructions behind waits need nothing that is waited for: in front, they run while products and copies do."
        ),
    }]
}
