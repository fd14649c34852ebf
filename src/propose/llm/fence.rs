//! The shape of a reply: thinking dropped, fenced blocks found, prose kept apart. It knows nothing of what
//! stands in a block, and never fails: whatever a model writes has some shape.

/// A reply taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Fenced blocks in order.
    pub(super) blocks: Vec<Block>,
    /// Everything outside of them.
    pub(super) prose: String,
}

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The first word after the opening fence, in lower case: `ptx`, `json`, `diff`, or nothing.
    pub(super) language: String,
    /// Without the fences; every line ends in `\n`.
    pub(super) text: String,
    /// Whether a closing fence was there.
    pub(super) closed: bool,
}

/// What is left of a reply without its thinking, line ends made `\n`. `None`: there was nothing else.
pub(super) fn without_thinking(reply: &str) -> Option<String> {
    let text = reply.replace("\r\n", "\n").replace('\r', "\n");
    let text = text.trim_start_matches('\u{feff}');
    // The final channel of models that write their channels out.
    let text = match text.rsplit_once("<|channel|>final<|message|>") {
        Some((_, last)) => last.split("<|").next().unwrap_or(last),
        None => text,
    };
    let mut kept = text.to_owned();
    let mut thought = false;
    for name in ["think", "thinking", "thought", "reasoning"] {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        while let Some(end) = kept.find(&close) {
            // Templates often put the opening tag into the prompt: then all before is thinking.
            let start = kept[..end].find(&open).unwrap_or(0);
            kept.replace_range(start..end + close.len(), "");
            thought = true;
        }
        if let Some(start) = kept.find(&open) {
            kept.truncate(start);
            thought = true;
        }
    }
    (!(thought && kept.trim().is_empty())).then_some(kept)
}

/// Finds the fenced blocks. A fence that opens with a language inside an open block means that the block
/// before was never closed.
pub(super) fn shape(text: &str) -> Shape {
    let mut shape = Shape::default();
    let mut open: Option<(Fence<'_>, Block)> = None;
    for line in text.lines() {
        let fence = Fence::of(line);
        match (&mut open, fence) {
            (Some((opened, _)), Some(fence)) if fence.closes(opened) => {
                if let Some((_, mut block)) = open.take() {
                    block.closed = true;
                    shape.blocks.push(block);
                }
            }
            (Some((opened, _)), Some(fence)) if fence.reopens(opened) => {
                if let Some((_, block)) = open.replace((fence, fence.block())) {
                    shape.blocks.push(block);
                }
            }
            (Some((_, block)), _) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(fence)) => open = Some((fence, fence.block())),
            (None, None) => {
                shape.prose.push_str(line);
                shape.prose.push('\n');
            }
        }
    }
    shape.blocks.extend(open.map(|(_, block)| block));
    shape
}

/// A line of three or more backticks or tildes.
#[derive(Clone, Copy)]
struct Fence<'a> {
    mark: u8,
    length: usize,
    info: &'a str,
}

impl<'a> Fence<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let line = line.trim();
        let mark = *line.as_bytes().first()?;
        if mark != b'`' && mark != b'~' {
            return None;
        }
        let length = line.bytes().take_while(|byte| *byte == mark).count();
        let info = line[length..].trim();
        // ```` ```code``` ```` on one line is an inline quotation.
        (length >= 3 && !info.contains('`')).then_some(Self { mark, length, info })
    }

    fn closes(&self, opened: &Fence<'_>) -> bool {
        self.info.is_empty() && self.mark == opened.mark && self.length >= opened.length
    }

    fn reopens(&self, opened: &Fence<'_>) -> bool {
        !self.info.is_empty() && self.mark == opened.mark && self.length == opened.length
    }

    fn block(&self) -> Block {
        let language = self.info.split_whitespace().next().unwrap_or("");
        Block {
            language: language.trim_matches(['{', '}', '.']).to_lowercase(),
            text: String::new(),
            closed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Vec<(String, String, bool)> {
        shape(text)
            .blocks
            .into_iter()
            .map(|block| (block.language, block.text, block.closed))
            .collect()
    }

    fn block(language: &str, text: &str, closed: bool) -> (String, String, bool) {
        (language.to_owned(), text.to_owned(), closed)
    }

    #[test]
    fn fences_of_all_kinds_are_found() {
        assert_eq!(
            blocks("a\n```ptx\nx\n```\nb\n~~~\ny\n~~~\n   ```JSON title=1\n   z\n   ```\n"),
            [
                block("ptx", "x\n", true),
                block("", "y\n", true),
                block("json", "   z\n", true)
            ]
        );
        assert_eq!(blocks("```ptx\nx"), [block("ptx", "x\n", false)]);
        assert_eq!(blocks("inline ```x``` only\n```x```\n"), []);
    }

    #[test]
    fn a_longer_fence_holds_shorter_ones_and_a_forgotten_close_ends_at_the_next_open() {
        assert_eq!(
            blocks("````md\n```ptx\nx\n```\n````\n"),
            [block("md", "```ptx\nx\n```\n", true)]
        );
        assert_eq!(
            blocks("```ptx\nx\n```json\n{}\n```\n"),
            [block("ptx", "x\n", false), block("json", "{}\n", true)]
        );
    }

    #[test]
    fn thinking_is_dropped() {
        for (reply, kept) in [
            ("<think>a</think>b", Some("b")),
            ("a\n</think>\r\nb", Some("\nb")),
            ("b<think>never closed", Some("b")),
            ("<think>only</think>\n", None),
            ("<think>only", None),
            ("<thinking>a</thinking>b<thinking>c</thinking>d", Some("bd")),
            (
                "<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b<|return|>",
                Some("b"),
            ),
            ("", Some("")),
        ] {
            assert_eq!(without_thinking(reply).as_deref(), kept, "{reply}");
        }
    }
}
