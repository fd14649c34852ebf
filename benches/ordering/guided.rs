//! What a prior from estimates could save a search over rewrites: a recorded graph, gone through by the least estimate
//! of what can be had, against the order in which it was recorded. A setting can be had once a source that its own grew
//! from was judged.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use warptree::search::NodeId;

use crate::judged::Ranking;

/// As near to the best as is good enough.
const NEAR: f64 = 1.01;
/// Random orders that are averaged.
const DRAWS: u64 = 200;

/// Evaluations until one is within 1 % of the best.
pub struct Evaluations {
    /// In the order of the log.
    pub recorded: f64,
    /// By the least estimate.
    pub guided: f64,
    /// In random orders, on average.
    pub random: f64,
}

/// Goes through a ranking that several sources share; `None` for others.
pub fn evaluations(ranking: &Ranking, estimates: &[f64]) -> Option<Evaluations> {
    let nodes: BTreeSet<NodeId> = (ranking.settings.iter()).map(|s| s.node).collect();
    // Sources that grew from others hold the graph together; spaces of one source have none.
    if nodes.len() * 2 < ranking.settings.len() {
        return None;
    }
    let mut in_log: Vec<usize> = (0..ranking.settings.len()).collect();
    in_log.sort_by_key(|&at| ranking.settings[at].logged);
    let least = |known: &[usize]| {
        (0..known.len())
            .min_by(|&a, &b| estimates[known[a]].total_cmp(&estimates[known[b]]))
            .unwrap_or(0)
    };
    let random = (0..DRAWS).map(|seed| {
        let mut rng = Pcg64::seed_from_u64(seed);
        until_near(ranking, |known| rng.random_range(0..known.len()))
    });
    Some(Evaluations {
        recorded: near(ranking, in_log.into_iter()),
        guided: until_near(ranking, least),
        random: random.sum::<f64>() / DRAWS as f64,
    })
}

/// Evaluations when the next one is chosen from those that can be had.
fn until_near(ranking: &Ranking, mut choose: impl FnMut(&[usize]) -> usize) -> f64 {
    let mut left: Vec<usize> = (0..ranking.settings.len()).collect();
    left.sort_by_key(|&at| ranking.settings[at].logged);
    let mut judged: BTreeSet<NodeId> = BTreeSet::new();
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let within_reach = |&at: &usize| {
            let parents = &ranking.settings[at].parents;
            parents.is_empty() || parents.iter().any(|parent| judged.contains(parent))
        };
        let mut known: Vec<usize> = left.iter().copied().filter(within_reach).collect();
        if known.is_empty() {
            // Their parents were never judged rightly.
            known.clone_from(&left);
        }
        let chosen = known[choose(&known)];
        left.retain(|&at| at != chosen);
        judged.insert(ranking.settings[chosen].node);
        order.push(chosen);
    }
    near(ranking, order.into_iter())
}

fn near(ranking: &Ranking, mut order: impl Iterator<Item = usize>) -> f64 {
    let times = ranking.settings.iter().map(|setting| setting.time);
    let best = times.fold(f64::INFINITY, f64::min);
    let before = order.position(|at| ranking.settings[at].time <= best * NEAR);
    before.map_or(f64::NAN, |before| before as f64 + 1.0)
}
