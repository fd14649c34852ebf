//! Pictures: plots, bars and the search graph as SVG, and SVG as PNG. They draw stored facts and compute
//! none.

mod axis;
mod bars;
mod plot;
mod png;
mod svg;
mod tree;

pub use axis::{Axis, Format, Scale};
pub use bars::{Bar, bars};
pub use plot::{Line, Mark, Plot, Rule, Stroke};
pub use png::{PngError, png};
pub use svg::{Picture, palette_css, side_by_side};
pub use tree::{TreePicture, Twig};
