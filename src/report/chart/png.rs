//! SVG as PNG, with a font of our own, so that pictures look the same everywhere: what it has no glyph for
//! is drawn as an empty box.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::Picture;

/// DejaVu Sans, the characters that charts use.
const FONT: &[u8] = include_bytes!("DejaVuSans-subset.ttf");

/// Longest side in pixels.
const LARGEST: f32 = 6000.0;

/// A picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the picture: {0}")]
pub struct PngError(String);

/// Draws `picture` at twice its size, less where it would be larger than 6000 pixels.
pub fn png(picture: &Picture) -> Result<Vec<u8>, PngError> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    let options = Options {
        font_family: "DejaVu Sans".to_owned(),
        fontdb: Arc::new(fonts),
        ..Options::default()
    };
    let tree =
        Tree::from_str(&picture.file(), &options).map_err(|error| PngError(error.to_string()))?;
    let size = tree.size();
    let scale = 2.0_f32.min(LARGEST / size.width().max(size.height()));
    let (width, height) = (size.width() * scale, size.height() * scale);
    let mut pixels = Pixmap::new(width.ceil() as u32, height.ceil() as u32)
        .ok_or_else(|| PngError(format!("{width} × {height} pixels")))?;
    resvg::render(
        &tree,
        Transform::from_scale(scale, scale),
        &mut pixels.as_mut(),
    );
    pixels
        .encode_png()
        .map_err(|error| PngError(error.to_string()))
}
