//! Turns byte offsets into lines and columns for people. It knows nothing of PTX.

/// A 1-based line and column; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// 1 for the first line.
    pub line: u32,
    /// 1 for the first character of a line.
    pub column: u32,
}

/// Where a text's lines begin; answers `offset → line` in O(log lines).
#[derive(Clone, Debug)]
pub struct Lines {
    starts: Vec<u32>,
}

impl Lines {
    /// Indexes `text`.
    pub fn new(text: &str) -> Self {
        let breaks = text
            .bytes()
            .enumerate()
            .filter_map(|(at, byte)| (byte == b'\n').then_some(at as u32 + 1));
        Self {
            starts: std::iter::once(0).chain(breaks).collect(),
        }
    }

    /// The 1-based line of a byte offset.
    pub fn line(&self, offset: u32) -> u32 {
        self.starts.partition_point(|&start| start <= offset) as u32
    }

    /// The byte offset at which a 1-based line begins; `None` past the last line.
    pub fn start(&self, line: u32) -> Option<u32> {
        self.starts.get((line as usize).checked_sub(1)?).copied()
    }
}

/// The line and column of a byte offset; an offset past the end is the end.
pub fn position(text: &str, offset: u32) -> Position {
    let mut end = (offset as usize).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Position {
        line: before.bytes().filter(|&b| b == b'\n').count() as u32 + 1,
        column: before[line_start..].chars().count() as u32 + 1,
    }
}
