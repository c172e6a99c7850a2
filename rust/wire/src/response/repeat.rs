//! The common case of a stream: an event like the one before it, with another piece of text.
//!
//! Two such events differ in the inside of one JSON string. If the bytes before it and after it
//! are the same, and the string ends where they begin, the event says the same but for its text,
//! and comparing is all the reading it needs.

use std::ops::Range;

/// A longer event is not worth remembering, in bytes.
const LONGEST: usize = 4096;

/// The last event, if it said nothing but one piece of text.
#[derive(Debug, Default)]
pub(super) struct Repeat {
    /// The event as it stood in the stream, up to the blank line that ended it. Empty: none.
    event: Vec<u8>,
    /// The inside of its string.
    text: Range<usize>,
}

impl Repeat {
    /// Remembers an event. `text`: the inside of its string.
    pub(super) fn learn(&mut self, event: &[u8], text: Range<usize>) {
        self.event.clear();
        if event.len() <= LONGEST && event.ends_with(b"\n") && text.end < event.len() {
            self.event.extend_from_slice(event);
            self.text = text;
        }
    }

    /// Another kind of event came.
    pub(super) fn forget(&mut self) {
        self.event.clear();
    }

    /// Whether `stream` begins with such an event: its length, and whether its text is not empty.
    pub(super) fn find(&self, stream: &[u8]) -> Option<(usize, bool)> {
        if self.event.is_empty() {
            return None;
        }
        let rest = stream.strip_prefix(&self.event[..self.text.start])?;
        let text = inside_of_string(rest)?;
        let tail = &self.event[self.text.end..];
        rest[text..]
            .starts_with(tail)
            .then_some((self.text.start + text + tail.len(), text > 0))
    }
}

/// Length of the string whose inside begins here, if it ends and holds no control character.
fn inside_of_string(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' if *bytes.get(at + 1)? >= 0x20 => at += 2,
            0x20.. => at += 1,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned() -> Repeat {
        let mut repeat = Repeat::default();
        repeat.learn(b"data: {\"t\":\"a\"}\n\n", 12..13);
        repeat
    }

    #[test]
    fn an_event_with_another_text_is_found() {
        let found = learned().find(b"data: {\"t\":\"x \\\" y\\\\\"}\n\ndata: ");
        assert_eq!(found, Some((24, true)));
        assert_eq!(learned().find(b"data: {\"t\":\"\"}\n\n"), Some((16, false)));
    }

    #[test]
    fn anything_else_is_not() {
        for other in [
            &b"data: {\"t\":\"x\",\"u\":1}\n\n"[..],
            b"data: {\"t\":\"x\"}\n",
            b"data: {\"t\":\"x\\\"}\n\n",
            b"data: {\"t\":\"x\n\"}\n\n",
            b"data: {\"t\":\"x\\\n\"}\n\n",
            b"data: {\"u\":\"x\"}\n\n",
            b"",
        ] {
            assert_eq!(learned().find(other), None, "{}", other.escape_ascii());
        }
        let mut forgotten = learned();
        forgotten.forget();
        assert_eq!(forgotten.find(b"data: {\"t\":\"a\"}\n\n"), None);
    }
}
