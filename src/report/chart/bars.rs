//! Horizontal bars in groups: one row a name, one bar a series.

use super::svg::{Anchor, Picture, SERIES, cut};

const WIDTH: f64 = 520.0;
const LEFT: f64 = 170.0;
const BAR: f64 = 11.0;

/// A row.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it counts.
    pub name: String,
    /// A share of 1 for each series; `None` where nobody knows.
    pub shares: Vec<Option<f64>>,
}

/// Rows of bars for `series`, scaled to the greatest of them.
pub fn bars(title: &str, description: &str, series: &[&str], rows: &[Bar]) -> Picture {
    let row = BAR * series.len() as f64 + 9.0;
    let height = 26.0 + row * rows.len() as f64;
    let mut picture = Picture::new(WIDTH, height, title, description);
    let most = rows
        .iter()
        .flat_map(|bar| bar.shares.iter().flatten())
        .fold(0.0_f64, |most, share| most.max(*share))
        .max(f64::MIN_POSITIVE);
    let mut x = LEFT;
    for (nth, name) in series.iter().enumerate() {
        let class = format!("fill{}", nth % SERIES);
        picture.rect((x, 4.0), (BAR, BAR), &class, "");
        picture.text((x + 16.0, 13.0), Anchor::Start, "", name);
        x += 34.0 + 6.4 * name.chars().count() as f64;
    }
    for (nth, bar) in rows.iter().enumerate() {
        let top = 24.0 + row * nth as f64;
        let middle = top + (row - 9.0) / 2.0 + 4.0;
        picture.text((LEFT - 8.0, middle), Anchor::End, "", &cut(&bar.name, 26));
        for (series, share) in bar.shares.iter().enumerate() {
            let y = top + BAR * series as f64;
            let words = match share {
                Some(share) => format!("{:.0} %", share * 100.0),
                None => "not measured".to_owned(),
            };
            let length = share.unwrap_or(0.0) / most * (WIDTH - LEFT - 44.0);
            let class = format!("fill{}", series % SERIES);
            picture.rect((LEFT, y), (length, BAR - 2.0), &class, "");
            let at = (LEFT + length + 5.0, y + BAR - 2.5);
            picture.text(at, Anchor::Start, "muted", &words);
        }
    }
    picture
}
