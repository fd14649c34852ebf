//! The search graph as a tree from left to right: leaves in rows of their own, parents between their
//! children.

use super::svg::{Anchor, Picture, cut};

const COLUMN: f64 = 215.0;
const ROW: f64 = 20.0;
const LABEL: usize = 30;

/// One thing in the tree. A parent comes before its children, and the first has none.
#[derive(Clone, Debug)]
pub struct Twig {
    /// Place of the parent among the twigs.
    pub parent: Option<usize>,
    /// Beside it.
    pub label: String,
    /// How it looks.
    pub class: &'static str,
    /// On the way to the winner.
    pub way: bool,
    /// When pointed at.
    pub tip: String,
}

/// A tree to draw.
#[derive(Clone, Debug)]
pub struct TreePicture<'a> {
    /// For those who cannot see it.
    pub title: &'a str,
    /// What it says.
    pub description: &'a str,
    /// The twigs.
    pub twigs: &'a [Twig],
}

impl TreePicture<'_> {
    /// As a picture.
    pub fn draw(&self) -> Picture {
        let places = layout(self.twigs);
        let extent = |pick: fn(&(f64, f64)) -> f64| places.iter().map(pick).fold(0.0, f64::max);
        let width = 40.0 + COLUMN * (extent(|place| place.0) + 1.0);
        let height = 30.0 + ROW * extent(|place| place.1);
        let mut picture = Picture::new(width, height, self.title, self.description);
        let at = |nth: usize| (16.0 + COLUMN * places[nth].0, 15.0 + ROW * places[nth].1);
        for way in [false, true] {
            for (nth, twig) in self.twigs.iter().enumerate() {
                if let Some(parent) = twig.parent
                    && twig.way == way
                {
                    let class = if way { "way" } else { "link" };
                    picture.link(at(parent), at(nth), class);
                }
            }
        }
        for (nth, twig) in self.twigs.iter().enumerate() {
            let (x, y) = at(nth);
            picture.circle((x, y), 5.0, twig.class, &twig.tip);
            let class = if twig.way { "strong" } else { "" };
            let label = cut(&twig.label, LABEL);
            picture.text((x + 9.0, y - 3.0), Anchor::Start, class, &label);
        }
        picture
    }
}

/// Column and row of each twig.
fn layout(twigs: &[Twig]) -> Vec<(f64, f64)> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); twigs.len()];
    let mut places = vec![(0.0, 0.0); twigs.len()];
    for (nth, twig) in twigs.iter().enumerate() {
        if let Some(parent) = twig.parent {
            children[parent].push(nth);
            places[nth].0 = places[parent].0 + 1.0;
        }
    }
    // leaves get their rows in the order of a walk; the stack is our own, for chains may be long
    let mut next_row = 0.0;
    let mut stack = vec![0];
    let mut walked = Vec::with_capacity(twigs.len());
    while let Some(nth) = stack.pop().filter(|nth| *nth < twigs.len()) {
        walked.push(nth);
        if children[nth].is_empty() {
            places[nth].1 = next_row;
            next_row += 1.0;
        }
        stack.extend(children[nth].iter().rev());
    }
    for nth in walked.into_iter().rev() {
        if let (Some(first), Some(last)) = (children[nth].first(), children[nth].last()) {
            places[nth].1 = (places[*first].1 + places[*last].1) / 2.0;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twig(parent: Option<usize>) -> Twig {
        Twig {
            parent,
            label: "edit".into(),
            class: "good",
            way: false,
            tip: String::new(),
        }
    }

    #[test]
    fn parents_stand_between_their_children_and_leaves_never_on_each_other() {
        let twigs = [None, Some(0), Some(0), Some(1), Some(1)].map(twig);
        let places = layout(&twigs);
        assert_eq!(
            places,
            [(0.0, 1.25), (1.0, 0.5), (1.0, 2.0), (2.0, 0.0), (2.0, 1.0)]
        );
    }

    #[test]
    fn a_chain_of_ten_thousand_is_drawn() {
        let twigs: Vec<Twig> = (0..10_000)
            .map(|nth: usize| twig(nth.checked_sub(1)))
            .collect();
        assert_eq!(layout(&twigs)[9_999], (9_999.0, 0.0));
        assert_eq!(layout(&[]), []);
    }
}
