//! Moves loads, and what they need, ahead of everything else in their block, so that they are in flight
//! together. A load passes a store only where the two cannot meet: that the task's buffers are apart is
//! known here and not to the compiler that wrote the code.

use super::change::{Change, Subject};
use super::memory::Effect;
use super::schedule::blocks;

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let mut edits = Vec::new();
    let mut moved = 0;
    for kernel in subject.kernels() {
        for block in blocks(&kernel) {
            let is_load = |number: usize| matches!(block.effects[number], Effect::Read(_));
            let needed = block.ancestors(is_load);
            let count = needed.len();
            let mut units = block.units(subject, &kernel);
            for unit in &mut units {
                if !needed[unit.rank] {
                    unit.rank += count;
                }
            }
            let Some(order) = block.order(&units) else {
                continue;
            };
            // Only what passes a store is more than the assembler does by itself.
            let is_store = |number: usize| matches!(block.effects[number], Effect::Write(_));
            let passed = |numbers: &[usize]| -> usize {
                let mut stores = 0;
                let mut behind = 0;
                for &number in numbers {
                    stores += usize::from(is_store(number));
                    behind += usize::from(is_load(number) && stores > 0);
                }
                behind
            };
            let before = passed(&(0..count).collect::<Vec<_>>());
            let after = passed(&order);
            if after >= before {
                continue;
            }
            moved += before - after;
            edits.extend(block.rewritten(subject, &kernel, &units, &order));
        }
    }
    if moved == 0 {
        return Vec::new();
    }
    vec![Change {
        label: "loads ahead of stores".to_owned(),
        edits,
        rationale: format!(
            "{moved} loads stood behind stores to other buffers; ahead of them they are in flight together."
        ),
    }]
}
