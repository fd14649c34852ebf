//! Products that a warp may issue before its own writes of their registers are ordered: after accumulators or A's
//! registers were written, only `wgmma.fence` makes them the product's.

use std::collections::BTreeMap;

use crate::sim::op::{AsyncOp, Depends, Instr, Op, Pc, Product, Side, Slot};

/// Each product that can be reached from a write of its registers with no fence between, and that write.
pub(super) fn unfenced(code: &[Instr], depends: &[Depends]) -> BTreeMap<Pc, Pc> {
    let products = code.iter().enumerate().filter_map(|(pc, instr)| {
        let product = product_of(instr)?;
        Some((pc as Pc, product))
    });
    let products: Vec<_> = products.collect();
    if products.is_empty() {
        return BTreeMap::new();
    }
    let before = predecessors(code);
    products
        .into_iter()
        .filter_map(|(pc, product)| Some((pc, write_before(code, depends, &before, pc, product)?)))
        .collect()
}

fn product_of(instr: &Instr) -> Option<&Product> {
    match &instr.op {
        Op::Async(op) => match op.as_ref() {
            AsyncOp::Product(product) => Some(product),
            _ => None,
        },
        _ => None,
    }
}

/// Walks back from a product until fences.
fn write_before(
    code: &[Instr],
    depends: &[Depends],
    before: &[Vec<Pc>],
    pc: Pc,
    product: &Product,
) -> Option<Pc> {
    let own = |slot: Slot| match product.a {
        Side::Registers(slots) => product.d.contains(&slot) || slots.contains(&slot),
        Side::Descriptor(_) => product.d.contains(&slot),
    };
    let mut seen = vec![false; code.len()];
    let mut left = before[pc as usize].clone();
    while let Some(at) = left.pop() {
        let index = at as usize;
        if std::mem::replace(&mut seen[index], true) {
            continue;
        }
        let instr = &code[index];
        if matches!(&instr.op, Op::Async(op) if matches!(op.as_ref(), AsyncOp::ProductFence)) {
            continue;
        }
        // One product after another needs no fence: the hardware keeps their order.
        let writes = depends
            .get(index)
            .map_or(&[][..], |depends| &depends.writes);
        let written = writes
            .iter()
            .filter_map(|&register| Slot::try_from(register).ok());
        if product_of(instr).is_none() && written.clone().any(own) {
            return Some(at);
        }
        left.extend(&before[index]);
    }
    None
}

fn predecessors(code: &[Instr]) -> Vec<Vec<Pc>> {
    let mut before = vec![Vec::new(); code.len()];
    for (pc, instr) in code.iter().enumerate() {
        let mut lead = |to: usize| {
            if let Some(list) = before.get_mut(to) {
                list.push(pc as Pc);
            }
        };
        let leaves = match &instr.op {
            Op::Branch { target } => {
                lead(*target as usize);
                true
            }
            Op::BranchIndexed { targets, .. } => {
                targets.iter().for_each(|&target| lead(target as usize));
                true
            }
            Op::Return | Op::Exit | Op::Trap => true,
            _ => false,
        };
        if !leaves || instr.guard.is_some() {
            lead(pc + 1);
        }
    }
    before
}
