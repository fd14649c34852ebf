//! The valid points as a decision diagram: one level a knob, one node for every combination of earlier
//! values that later requirements still look at. Its size follows how entangled the requirements are,
//! not how many points they leave. It knows tables, never expressions.

use std::collections::HashMap;

use super::SpaceError;
use super::table::Table;
use crate::source::knob::Point;

/// Nodes on one level up to which a diagram is built.
const LEVEL_LIMIT: usize = 1 << 18;

/// A node on the next level; number 0 on every level is the dead end, from which no valid point follows.
type Node = u32;

const DEAD: Node = 0;

/// The points that some tables allow together.
pub(super) struct Diagram {
    levels: Vec<Level>,
    root: Node,
    len: u64,
}

struct Level {
    knob: usize,
    radix: usize,
    /// `radix` nodes of the next level for each node of this one.
    children: Vec<Node>,
    /// Valid points from each node on.
    counts: Vec<u64>,
}

/// The diagram would be too large; without this table (its place in the list) it is smaller.
pub(super) struct TooWide {
    pub(super) table: usize,
}

impl Diagram {
    /// The diagram of the points that every table allows. `radices`: the number of values by knob.
    pub(super) fn build(
        radices: &[usize],
        tables: &[&Table],
    ) -> Result<Result<Self, TooWide>, SpaceError> {
        let order = order(radices, tables);
        let mut rank = vec![0; radices.len()];
        for (level, &knob) in order.iter().enumerate() {
            rank[knob] = level;
        }
        let last = |table: &Table| table.knobs().iter().map(|&knob| rank[knob]).max();

        let mut levels: Vec<Level> = Vec::with_capacity(order.len());
        // What is still looked at after the levels so far, and the combinations of its values seen.
        let mut live: Vec<usize> = Vec::new();
        let mut states: Vec<Box<[u16]>> = vec![Box::new([])];
        let mut point = vec![0u16; radices.len()];
        for (level, &knob) in order.iter().enumerate() {
            let due: Vec<&Table> = tables
                .iter()
                .copied()
                .filter(|table| last(table) == Some(level))
                .collect();
            let next_live: Vec<usize> = (0..radices.len())
                .filter(|&other| {
                    rank[other] <= level
                        && tables.iter().any(|table| {
                            table.knobs().contains(&other) && last(table) > Some(level)
                        })
                })
                .collect();
            let mut numbers: HashMap<Box<[u16]>, Node> = HashMap::new();
            let mut next_states: Vec<Box<[u16]>> = Vec::new();
            let mut children = vec![DEAD; radices[knob]];
            for state in &states {
                for (&other, &value) in std::iter::zip(&live, state) {
                    point[other] = value;
                }
                for value in 0..radices[knob] as u16 {
                    point[knob] = value;
                    if !due.iter().all(|table| table.allows(&point)) {
                        children.push(DEAD);
                        continue;
                    }
                    let key: Box<[u16]> = next_live.iter().map(|&other| point[other]).collect();
                    let node = match numbers.get(&key) {
                        Some(&node) => node,
                        None => {
                            next_states.push(key.clone());
                            let node = next_states.len() as Node;
                            numbers.insert(key, node);
                            node
                        }
                    };
                    children.push(node);
                }
                if next_states.len() > LEVEL_LIMIT {
                    let span = |table: &Table| {
                        let ranks = || table.knobs().iter().map(|&knob| rank[knob]);
                        ranks().max().zip(ranks().min()).map(|(hi, lo)| hi - lo)
                    };
                    let table = (0..tables.len())
                        .filter(|&table| last(tables[table]) > Some(level))
                        .max_by_key(|&table| span(tables[table]))
                        .expect("invariant: a state is kept for a table");
                    return Ok(Err(TooWide { table }));
                }
            }
            levels.push(Level {
                knob,
                radix: radices[knob],
                children,
                counts: Vec::new(),
            });
            live = next_live;
            states = next_states;
        }

        // From the end: how many points follow from each node. The last level's only node counts itself.
        let mut after = vec![0, 1];
        for level in levels.iter_mut().rev() {
            let mut counts = Vec::with_capacity(level.children.len() / level.radix);
            for children in level.children.chunks_mut(level.radix) {
                let mut count = 0u64;
                for child in children {
                    let more = after[*child as usize];
                    if more == 0 {
                        *child = DEAD;
                    }
                    count = count
                        .checked_add(more)
                        .filter(|&count| count < 1 << 63)
                        .ok_or(SpaceError::TooLarge)?;
                }
                counts.push(count);
            }
            level.counts = counts;
            after.clone_from(&level.counts);
        }
        // A requirement without knobs stands at no level.
        let constant = tables.iter().filter(|table| table.knobs().is_empty());
        let len = if constant.into_iter().all(|table| table.allows(&point)) {
            after[1]
        } else {
            0
        };
        Ok(Ok(Self {
            levels,
            root: if len == 0 { DEAD } else { 1 },
            len,
        }))
    }

    /// The number of points.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The point of this number, in the order of [`Points`]; `number` is less than [`Diagram::len`].
    pub(super) fn point(&self, mut number: u64) -> Point {
        let mut point = vec![0u16; self.levels.len()];
        let mut node = self.root;
        for (depth, level) in self.levels.iter().enumerate() {
            for (value, &child) in level.children(node).iter().enumerate() {
                let count = self.count(depth + 1, child);
                if number < count {
                    point[level.knob] = value as u16;
                    node = child;
                    break;
                }
                number -= count;
            }
        }
        Point(point.into())
    }

    fn count(&self, depth: usize, node: Node) -> u64 {
        match self.levels.get(depth) {
            Some(level) => level.counts[node as usize],
            None => u64::from(node),
        }
    }
}

impl Level {
    fn children(&self, node: Node) -> &[Node] {
        let start = node as usize * self.radix;
        &self.children[start..start + self.radix]
    }
}

/// The points of a diagram, one after the other.
pub(super) struct Points<'a> {
    diagram: &'a Diagram,
    /// The node on each level of the current point.
    path: Vec<Node>,
    point: Vec<u16>,
    started: bool,
}

impl<'a> Points<'a> {
    pub(super) fn new(diagram: &'a Diagram) -> Self {
        Self {
            diagram,
            path: vec![diagram.root],
            point: vec![0; diagram.levels.len()],
            started: false,
        }
    }

    /// Goes down from the end of the path by the first valid value on each level.
    fn descend(&mut self) {
        while let Some(level) = self.diagram.levels.get(self.path.len() - 1) {
            let node = *self.path.last().expect("invariant: the path has its root");
            let first = level.children(node).iter().position(|&child| child != DEAD);
            let value = first.expect("invariant: a live node has a live child");
            self.point[level.knob] = value as u16;
            self.path.push(level.children(node)[value]);
        }
    }
}

impl Iterator for Points<'_> {
    type Item = Point;

    fn next(&mut self) -> Option<Point> {
        if self.diagram.root == DEAD {
            return None;
        }
        if !self.started {
            self.started = true;
            self.descend();
            return Some(Point(self.point.clone().into()));
        }
        loop {
            self.path.pop();
            let depth = self.path.len().checked_sub(1)?;
            let level = &self.diagram.levels[depth];
            let children = level.children(self.path[depth]);
            let after = usize::from(self.point[level.knob]) + 1;
            let next = (after..level.radix).find(|&value| children[value] != DEAD);
            if let Some(value) = next {
                self.point[level.knob] = value as u16;
                self.path.push(children[value]);
                self.descend();
                return Some(Point(self.point.clone().into()));
            }
        }
    }
}

/// Knobs in the order that keeps the levels narrow: each time the one that leaves the fewest combinations
/// to remember; of equals, the first declared.
fn order(radices: &[usize], tables: &[&Table]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..radices.len()).collect();
    let mut placed = vec![false; radices.len()];
    let mut order = Vec::with_capacity(radices.len());
    while !left.is_empty() {
        let width = |next: usize| -> f64 {
            let done = |knob: usize| placed[knob] || knob == next;
            (0..radices.len())
                .filter(|&knob| {
                    done(knob)
                        && tables.iter().any(|table| {
                            table.knobs().contains(&knob)
                                && !table.knobs().iter().all(|&other| done(other))
                        })
                })
                .map(|knob| (radices[knob] as f64).ln())
                .sum()
        };
        let best = (0..left.len())
            .min_by(|&a, &b| width(left[a]).total_cmp(&width(left[b])))
            .expect("invariant: a knob is left");
        let knob = left.remove(best);
        placed[knob] = true;
        order.push(knob);
    }
    order
}
