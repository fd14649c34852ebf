//! An SVG picture as it is drawn: shapes and texts with classes, styled by one palette. Whatever text comes
//! in is escaped here. It knows no runs.

use std::fmt::Write as _;

/// Names of colours with their value on light and on dark ground. Pages use the names, files the light values.
const PALETTE: [(&str, &str, &str); 17] = [
    ("ground", "#ffffff", "#14171c"),
    ("ink", "#1b1f24", "#e7eaee"),
    ("muted", "#5b6470", "#a3acb8"),
    ("grid", "#dfe3e8", "#2c323a"),
    ("good", "#0a7a5c", "#35c99c"),
    ("best", "#9a6200", "#f2b63c"),
    ("wrong", "#c2410c", "#ff9061"),
    ("crashed", "#8b3fa8", "#d79af0"),
    ("refused", "#4a6785", "#8fb3d9"),
    ("voided", "#b3123f", "#ff7d9c"),
    ("empty", "#737b86", "#8d96a2"),
    ("series0", "#0a7a5c", "#35c99c"),
    ("series1", "#b45309", "#f2a33c"),
    ("series2", "#3b5fc0", "#8fa9ff"),
    ("series3", "#8b3fa8", "#d79af0"),
    ("series4", "#b3123f", "#ff7d9c"),
    ("series5", "#4a5560", "#b4bdc8"),
];

/// How many series have colours of their own.
pub(super) const SERIES: usize = 6;

/// Classes, over the names of colours.
const STYLE: &str = include_str!("chart.css");

/// `:root` rules that give the names of colours their values, for both schemes.
pub fn palette_css() -> String {
    let rules = |pick: fn(&(&str, &str, &str)) -> String| -> String {
        PALETTE.iter().map(pick).collect::<Vec<_>>().join("")
    };
    let light = rules(|(name, light, _)| format!("--{name}:{light};"));
    let dark = rules(|(name, _, dark)| format!("--{name}:{dark};"));
    format!(
        ":root{{color-scheme:light dark;{light}}}\n\
         @media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{STYLE}"
    )
}

/// Where a text hangs on its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Picture {
    width: f64,
    height: f64,
    title: String,
    description: String,
    body: String,
}

impl Picture {
    /// An empty one, in units of a pixel; `title` and `description` are for those who cannot see it.
    pub(super) fn new(width: f64, height: f64, title: &str, description: &str) -> Self {
        Self {
            width,
            height,
            title: title.to_owned(),
            description: description.to_owned(),
            body: String::new(),
        }
    }

    /// To stand in a page that carries [`palette_css`].
    pub fn inline(&self) -> String {
        format!(
            "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}{}</svg>",
            short(self.width),
            short(self.height),
            escaped(&self.label()),
            self.heading(),
            self.body
        )
    }

    /// A file of its own, on white.
    pub fn file(&self) -> String {
        let mut style = STYLE.to_owned();
        for (name, light, _) in PALETTE {
            style = style.replace(&format!("var(--{name})"), light);
        }
        let (width, height) = (short(self.width), short(self.height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">{}<style>{style}</style>\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>{}</svg>\n",
            self.heading(),
            self.body
        )
    }

    fn label(&self) -> String {
        format!("{}. {}", self.title, self.description)
    }

    fn heading(&self) -> String {
        format!(
            "<title>{}</title><desc>{}</desc>",
            escaped(&self.title),
            escaped(&self.description)
        )
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let _ = write!(
            self.body,
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{class}\"/>",
            short(from.0),
            short(from.1),
            short(to.0),
            short(to.1)
        );
    }

    /// Straight pieces from point to point; nothing for fewer than two points.
    pub(super) fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        if points.len() > 1 {
            let _ = write!(
                self.body,
                "<path d=\"{}\" class=\"{class}\"/>",
                path(points)
            );
        }
    }

    /// A filled outline.
    pub(super) fn area(&mut self, points: &[(f64, f64)], class: &str) {
        if points.len() > 2 {
            let _ = write!(
                self.body,
                "<path d=\"{}Z\" class=\"{class}\"/>",
                path(points)
            );
        }
    }

    /// A curve that leaves and arrives level.
    pub(super) fn link(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let middle = (from.0 + to.0) / 2.0;
        let _ = write!(
            self.body,
            "<path d=\"M{} {}C{} {} {} {} {} {}\" class=\"{class}\"/>",
            short(from.0),
            short(from.1),
            short(middle),
            short(from.1),
            short(middle),
            short(to.1),
            short(to.0),
            short(to.1)
        );
    }

    pub(super) fn rect(&mut self, at: (f64, f64), size: (f64, f64), class: &str, tip: &str) {
        let _ = write!(
            self.body,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{class}\"",
            short(at.0),
            short(at.1),
            short(size.0.max(0.0)),
            short(size.1.max(0.0))
        );
        self.close("rect", tip);
    }

    pub(super) fn circle(&mut self, at: (f64, f64), radius: f64, class: &str, tip: &str) {
        let _ = write!(
            self.body,
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" class=\"{class}\"",
            short(at.0),
            short(at.1),
            short(radius)
        );
        self.close("circle", tip);
    }

    pub(super) fn text(&mut self, at: (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            short(at.0),
            short(at.1),
            escaped(text)
        );
    }

    fn close(&mut self, element: &str, tip: &str) {
        if tip.is_empty() {
            self.body.push_str("/>");
        } else {
            let _ = write!(self.body, "><title>{}</title></{element}>", escaped(tip));
        }
    }
}

/// Pictures in rows of `columns`, as one.
pub fn side_by_side(
    title: &str,
    description: &str,
    pictures: &[Picture],
    columns: usize,
) -> Picture {
    const GAP: f64 = 16.0;
    let wide = pictures.iter().map(|one| one.width).fold(0.0, f64::max) + GAP;
    let columns = columns.clamp(1, pictures.len().max(1));
    let mut body = String::new();
    let mut y = 0.0;
    for row in pictures.chunks(columns) {
        for (nth, picture) in row.iter().enumerate() {
            let x = wide * nth as f64;
            let _ = write!(
                body,
                "<g transform=\"translate({} {})\">{}</g>",
                short(x),
                short(y),
                picture.body
            );
        }
        y += row.iter().map(|one| one.height).fold(0.0, f64::max) + GAP;
    }
    Picture {
        body,
        ..Picture::new(wide * columns as f64, y, title, description)
    }
}

fn path(points: &[(f64, f64)]) -> String {
    let mut out = String::new();
    for (nth, (x, y)) in points.iter().enumerate() {
        let letter = if nth == 0 { 'M' } else { 'L' };
        let _ = write!(out, "{letter}{} {}", short(*x), short(*y));
    }
    out
}

/// A tenth of a pixel is enough.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Text that is safe inside an element and inside a quoted attribute. Control characters, which XML does not
/// allow, are shown as a replacement character.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            control if control.is_control() => out.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// A text of at most `most` characters, its end marked where it was cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}
