//! A knob as the Gaussian process sees it: on which scales its values stand close together or far apart.
//! It knows values, never times.

use crate::source::{Knob, KnobValue};

/// What a scale orders values by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Their place in the list, as the source's author wrote it.
    Order,
    /// How many times two divides them: warps, sectors, banks and vectors are powers of two, so 96 may
    /// be nearer to 32 than to 80.
    Alignment,
}

/// A knob with a choice: its place in a point, and its values' places on each scale.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// The knob's index in a point.
    pub(super) knob: usize,
    /// How many values it has.
    pub(super) values: usize,
    /// Each from 0 to 1, by value index.
    scales: Vec<(Scale, Vec<f64>)>,
}

impl Axis {
    /// `None` for a knob without a choice.
    pub(super) fn new(index: usize, knob: &Knob) -> Option<Self> {
        let values = knob.values.len();
        if values < 2 {
            return None;
        }
        let order: Vec<f64> = (0..values)
            .map(|place| place as f64 / (values - 1) as f64)
            .collect();
        let mut scales = vec![(Scale::Order, order)];
        if let Some(alignment) = alignment(&knob.values)
            && alignment != scales[0].1
        {
            scales.push((Scale::Alignment, alignment));
        }
        Some(Self {
            knob: index,
            values,
            scales,
        })
    }

    /// What its scales order by; always the order first.
    pub(super) fn scales(&self) -> impl Iterator<Item = Scale> {
        self.scales.iter().map(|(scale, _)| *scale)
    }

    /// exp(−Σ w·|a − b|) over the scales for every pair of value indices, given one weight a scale.
    pub(super) fn similarities(&self, weights: &[f64]) -> Vec<f64> {
        debug_assert_eq!(weights.len(), self.scales.len());
        (0..self.values * self.values)
            .map(|cell| {
                let (a, b) = (cell / self.values, cell % self.values);
                let apart = |(weight, (_, places)): (&f64, &(Scale, Vec<f64>))| {
                    weight * (places[a] - places[b]).abs()
                };
                (-weights.iter().zip(&self.scales).map(apart).sum::<f64>()).exp()
            })
            .collect()
    }
}

/// Values by how often two divides them, from 0 to 1; `None` where that says nothing: of two values, of
/// text, where 0 or less is among them, and where all are alike.
fn alignment(values: &[KnobValue]) -> Option<Vec<f64>> {
    if values.len() < 3 {
        return None;
    }
    let powers: Vec<f64> = values
        .iter()
        .map(|value| match value {
            KnobValue::Int(value) if *value > 0 => Some(f64::from(value.trailing_zeros())),
            KnobValue::Int(_) | KnobValue::Text(_) => None,
        })
        .collect::<Option<_>>()?;
    let least = powers.iter().copied().fold(f64::INFINITY, f64::min);
    let most = powers.iter().copied().fold(0.0, f64::max);
    (most > least).then(|| {
        powers
            .iter()
            .map(|power| (power - least) / (most - least))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(values: Vec<KnobValue>) -> Option<Axis> {
        let knob = Knob {
            name: "k".into(),
            values,
            default: 0,
        };
        Axis::new(0, &knob)
    }

    fn scales(values: &[i64]) -> Vec<Scale> {
        let axis = axis(values.iter().copied().map(KnobValue::Int).collect());
        axis.expect("a choice").scales().collect()
    }

    #[test]
    fn alignment_is_a_scale_where_it_differs_from_the_order() {
        use Scale::{Alignment, Order};
        assert_eq!(scales(&[32, 64, 96, 128]), [Order, Alignment]);
        assert_eq!(scales(&[1, 2, 3, 4]), [Order, Alignment]);
        assert_eq!(scales(&[16, 32, 64, 128]), [Order], "powers of two");
        assert_eq!(scales(&[8, 4, 2]), [Order, Alignment], "falling");
        assert_eq!(scales(&[3, 5, 7]), [Order], "all odd");
        assert_eq!(scales(&[0, 1, 2]), [Order], "0 has no power of two");
        assert_eq!(scales(&[1, 2]), [Order], "one step is a step");
        let words = ["ca", "cg", "cs"].map(|word| KnobValue::Text(word.into()));
        let words = axis(words.to_vec()).expect("a choice");
        assert_eq!(words.scales().collect::<Vec<_>>(), [Order]);
        assert!(axis(vec![KnobValue::Int(1)]).is_none());
    }

    #[test]
    fn values_alike_on_a_heavy_scale_are_similar_though_far_on_a_light_one() {
        let values = [16, 32, 48, 64, 80, 96].map(KnobValue::Int);
        let axis = axis(values.to_vec()).expect("a choice");
        let table = axis.similarities(&[0.1, 2.0]);
        let similar = |a: usize, b: usize| table[a * axis.values + b];
        assert!(similar(1, 5) > similar(1, 2), "32 is like 96, not like 48");
        assert!(similar(0, 2) > similar(0, 4), "48 is nearer to 16 than 80");
        for a in 0..axis.values {
            assert_eq!(similar(a, a), 1.0);
            for b in 0..axis.values {
                assert_eq!(similar(a, b), similar(b, a));
            }
        }
    }
}
