//! A plot of lines, bands and marks over two axes. It draws what it is given; what lies beyond an axis is
//! drawn at its edge.

use super::axis::Axis;
use super::svg::{Anchor, Picture, SERIES, cut};

/// Size of the whole, in pixels at scale 1: readable at 400 px, and enlarged where there is room.
const SIZE: (f64, f64) = (520.0, 300.0);
const TOP: f64 = 14.0;
const BOTTOM: f64 = 42.0;
const RIGHT: f64 = 14.0;
/// Width of a character, about.
const CHARACTER: f64 = 6.4;

/// What is to be drawn.
#[derive(Clone, Debug)]
pub struct Plot {
    /// For those who cannot see it, and for tools that show titles.
    pub title: String,
    /// What it says, in a sentence.
    pub description: String,
    /// Left to right.
    pub x: Axis,
    /// Bottom to top.
    pub y: Axis,
    /// Lines, each in the colour of its place.
    pub lines: Vec<Line>,
    /// Single points.
    pub marks: Vec<Mark>,
    /// Levels to compare with.
    pub rules: Vec<Rule>,
}

/// A line with an optional band around it.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the legend; empty for none.
    pub name: String,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Its points, x rising.
    pub points: Vec<(f64, f64)>,
    /// (x, low, high), x rising.
    pub band: Vec<(f64, f64, f64)>,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A series: its colour is its place among the series.
    Series(usize),
    /// A limit.
    Roof,
}

/// A point.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Where.
    pub at: (f64, f64),
    /// How it looks.
    pub class: &'static str,
    /// Radius in pixels.
    pub radius: f64,
    /// Beside it; may be empty.
    pub label: String,
    /// When pointed at; may be empty.
    pub tip: String,
}

/// A level.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Where on the y axis.
    pub at: f64,
    /// What it is.
    pub label: String,
}

impl Plot {
    /// As a picture.
    pub fn draw(&self) -> Picture {
        let legend: Vec<&Line> = self
            .lines
            .iter()
            .filter(|line| !line.name.is_empty())
            .collect();
        let rows = legend_rows(&legend);
        let height = SIZE.1 + 16.0 * rows.len() as f64;
        let mut picture = Picture::new(SIZE.0, height, &self.title, &self.description);
        let y_ticks = self.y.ticks();
        let widest = y_ticks
            .iter()
            .map(|(_, label)| label.chars().count())
            .max()
            .unwrap_or(0);
        let frame = Frame {
            left: 26.0 + CHARACTER * widest as f64,
            right: SIZE.0 - RIGHT,
            top: TOP + 14.0,
            bottom: SIZE.1 - BOTTOM,
        };
        self.draw_axes(&mut picture, &frame, &y_ticks);
        let place = |point: (f64, f64)| frame.place(&self.x, &self.y, point);
        for line in &self.lines {
            if let Stroke::Series(nth) = line.stroke {
                let upper = line.band.iter().map(|(x, _, high)| place((*x, *high)));
                let lower = line.band.iter().rev().map(|(x, low, _)| place((*x, *low)));
                let outline: Vec<_> = upper.chain(lower).collect();
                picture.area(&outline, &format!("band fill{}", nth % SERIES));
            }
        }
        for rule in &self.rules {
            let (_, y) = place((self.x.low, rule.at));
            picture.line((frame.left, y), (frame.right, y), "rule");
            let label = cut(&rule.label, 48);
            // beside the line, away from what lies between it and the middle
            let low = self.y.share(rule.at) < 0.5;
            let beside = if low { y + 12.0 } else { y - 4.0 };
            picture.text((frame.right, beside), Anchor::End, "muted", &label);
        }
        for line in &self.lines {
            let points: Vec<_> = line.points.iter().map(|point| place(*point)).collect();
            picture.polyline(&points, &class(line.stroke));
        }
        for mark in &self.marks {
            let at = place(mark.at);
            picture.circle(at, mark.radius, mark.class, &mark.tip);
            if !mark.label.is_empty() {
                let right = at.0 > (frame.left + frame.right) / 2.0;
                let (anchor, dx) = if right {
                    (Anchor::End, -mark.radius - 4.0)
                } else {
                    (Anchor::Start, mark.radius + 4.0)
                };
                picture.text((at.0 + dx, at.1 + 14.0), anchor, "strong", &mark.label);
            }
        }
        for (row, entries) in rows.iter().enumerate() {
            let y = SIZE.1 + 8.0 + 16.0 * row as f64;
            for (x, line) in entries {
                picture.line((*x, y - 4.0), (*x + 18.0, y - 4.0), &class(line.stroke));
                picture.text((*x + 24.0, y), Anchor::Start, "", &line.name);
            }
        }
        picture
    }

    fn draw_axes(&self, picture: &mut Picture, frame: &Frame, y_ticks: &[(f64, String)]) {
        for (at, label) in y_ticks {
            let (_, y) = frame.place(&self.x, &self.y, (self.x.low, *at));
            picture.line((frame.left, y), (frame.right, y), "grid");
            picture.text((frame.left - 6.0, y + 4.0), Anchor::End, "muted", label);
        }
        for (at, label) in self.x.ticks() {
            let (x, _) = frame.place(&self.x, &self.y, (at, self.y.low));
            picture.line((x, frame.bottom), (x, frame.bottom + 4.0), "axis");
            let y = frame.bottom + 17.0;
            picture.text((x, y), Anchor::Middle, "muted", &label);
        }
        picture.line(
            (frame.left, frame.bottom),
            (frame.right, frame.bottom),
            "axis",
        );
        let middle = (frame.left + frame.right) / 2.0;
        let below = frame.bottom + 34.0;
        picture.text((middle, below), Anchor::Middle, "", &self.x.label);
        picture.text((4.0, TOP), Anchor::Start, "", &self.y.label);
    }
}

/// The rectangle between the axes.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    fn place(&self, x: &Axis, y: &Axis, (at_x, at_y): (f64, f64)) -> (f64, f64) {
        (
            self.left + x.share(at_x) * (self.right - self.left),
            self.bottom - y.share(at_y) * (self.bottom - self.top),
        )
    }
}

fn class(stroke: Stroke) -> String {
    match stroke {
        Stroke::Series(nth) => format!("line line{}", nth % SERIES),
        Stroke::Roof => "roof".to_owned(),
    }
}

/// Entries from left to right, as many rows as they need.
fn legend_rows<'a>(lines: &[&'a Line]) -> Vec<Vec<(f64, &'a Line)>> {
    let mut rows: Vec<Vec<(f64, &Line)>> = Vec::new();
    let mut x = f64::INFINITY;
    for line in lines {
        let width = 40.0 + CHARACTER * line.name.chars().count() as f64;
        if x + width > SIZE.0 {
            rows.push(Vec::new());
            x = 10.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((x, line));
        }
        x += width;
    }
    rows
}
