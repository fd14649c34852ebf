//! Server-sent events out of bytes as they arrive, cut wherever they may be. The crates for this hand out
//! panics on a byte order mark; servers are not trusted with that.

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Its name; `message` where it has none.
    pub(super) name: String,
    /// Its data, lines joined by `\n`; never empty.
    pub(super) data: String,
}

/// Takes in bytes and gives out whole events.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The line under way.
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed right behind it belongs to the same line's end.
    after_return: bool,
    /// A line was seen: a byte order mark stands before the first alone.
    begun: bool,
    name: String,
    data: Option<String>,
}

impl Decoder {
    /// The events that end in `bytes`.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for &byte in bytes {
            let ends = match byte {
                b'\n' if self.after_return => false,
                b'\n' | b'\r' => true,
                _ => {
                    self.line.push(byte);
                    false
                }
            };
            self.after_return = byte == b'\r';
            if ends {
                events.extend(self.end_line());
            }
        }
        events
    }

    /// The event whose empty line never came, if there is one.
    pub(super) fn finish(&mut self) -> Option<Event> {
        if !self.line.is_empty() {
            // A line that is cut is at worst no JSON, and told as that.
            self.end_line();
        }
        self.end_event()
    }

    fn end_line(&mut self) -> Option<Event> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let text = match std::mem::replace(&mut self.begun, true) {
            true => &*text,
            false => text.trim_start_matches('\u{feff}'),
        };
        if text.is_empty() {
            return self.end_event();
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "event" => value.clone_into(&mut self.name),
            // Comments, ids, times to wait before connecting again.
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<Event> {
        let name = std::mem::take(&mut self.name);
        let data = self.data.take().filter(|data| !data.trim().is_empty())?;
        Some(Event {
            name: match name.is_empty() {
                true => "message".to_owned(),
                false => name,
            },
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event {
            name: name.to_owned(),
            data: data.to_owned(),
        }
    }

    fn decoded(pieces: &[&[u8]]) -> Vec<Event> {
        let mut decoder = Decoder::default();
        let mut events: Vec<Event> = pieces
            .iter()
            .flat_map(|piece| decoder.feed(piece))
            .collect();
        events.extend(decoder.finish());
        events
    }

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_cut() {
        let text = "\u{feff}: hi\r\n\r\nevent: a\rid: 7\rdata:1é😀\rdata:  2\r\rdata\n\ndata: \n\nretry: 5\ndata: x\n\n\n\nevent: b\ndata: cut";
        let expected = [
            event("a", "1é😀\n 2"),
            event("message", "x"),
            event("b", "cut"),
        ];
        let bytes = text.as_bytes();
        assert_eq!(decoded(&[bytes]), expected);
        for first in 0..bytes.len() {
            for second in first..bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(decoded(&pieces), expected, "cut at {first} and {second}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_an_accident(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), cut in 0_usize..200) {
            let cut = cut.min(bytes.len());
            assert_eq!(decoded(&[&bytes[..cut], &bytes[cut..]]), decoded(&[&bytes]));
        }
    }
}
