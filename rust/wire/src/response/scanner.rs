//! Reads an answer as it streams, and passes its bytes on.

use memchr::memmem;

use crate::Dialect;

use super::ResponseFacts;
use super::event::{Event, Kind};
use super::node::Node;
use super::repeat::Repeat;
use super::sse::{Lines, Token};
use super::walk::Walk;

/// No usage chunk is longer than this, so nothing longer is held back or cut.
const LONGEST_USAGE_CHUNK: usize = 16 * 1024;

/// What to send on.
#[derive(Debug, PartialEq, Eq)]
pub enum Passed {
    /// The piece as it came.
    Same,
    /// These bytes instead.
    Changed(Vec<u8>),
}

/// Reads one answer.
#[derive(Debug)]
pub struct Scanner {
    dialect: Dialect,
    facts: ResponseFacts,
    walk: Walk,
    event: Event,
    stream: Option<Stream>,
    strip: Option<Strip>,
}

/// Where we are in an answer that is a stream of events.
#[derive(Debug, Default)]
struct Stream {
    lines: Lines,
    /// The beginning of the event's data, to know `[DONE]`.
    head: Head,
    /// Pieces of the event's data so far.
    pieces: usize,
    repeat: Repeat,
}

/// The first bytes of an event's data.
#[derive(Debug, Default)]
struct Head {
    bytes: [u8; 8],
    length: usize,
}

impl Head {
    fn push(&mut self, data: &[u8]) {
        for (slot, &byte) in self.bytes.iter_mut().skip(self.length).zip(data) {
            *slot = byte;
        }
        self.length = self.length.saturating_add(data.len());
    }

    fn is(&self, word: &[u8]) -> bool {
        self.bytes.get(..self.length) == Some(word)
    }
}

/// Holds events back that may turn out to be the usage chunk.
#[derive(Debug, Default)]
struct Strip {
    /// Bytes of the present event that were not passed on.
    held: Vec<u8>,
    /// The present event is none to cut: it is passed on as it comes.
    is_released: bool,
    /// The last event ended with a CR at the end of a piece, so an LF that follows belongs to it:
    /// whether it was cut.
    open_cr: Option<bool>,
}

impl Scanner {
    /// A reader for one answer. `stream`: it is a stream of events, else one JSON document.
    /// `strip_usage`: the client did not ask for the usage chunk, so it is cut.
    pub fn new(dialect: Dialect, stream: bool, strip_usage: bool) -> Self {
        let strips = stream && strip_usage && dialect.usage_on_request();
        Self {
            dialect,
            facts: ResponseFacts::default(),
            walk: Walk::new(Node::root(dialect)),
            event: Event::default(),
            stream: stream.then(Stream::default),
            strip: strips.then(Strip::default),
        }
    }

    /// What the answer has said so far.
    pub fn facts(&self) -> &ResponseFacts {
        &self.facts
    }

    /// Reads the next piece.
    pub fn feed(&mut self, piece: &[u8]) -> Passed {
        if piece.is_empty() {
            return Passed::Same;
        }
        let Some(mut stream) = self.stream.take() else {
            self.walk.feed(piece, &mut self.event);
            return Passed::Same;
        };
        let passed = match self.strip.take() {
            None => {
                self.read(&mut stream, piece, |_, _| {});
                Passed::Same
            }
            Some(mut strip) => {
                let passed = self.read_and_strip(&mut stream, &mut strip, piece);
                self.strip = Some(strip);
                passed
            }
        };
        self.stream = Some(stream);
        passed
    }

    /// Ends the answer. What was held back.
    pub fn finish(&mut self) -> Vec<u8> {
        match self.stream.take() {
            None => {
                let event = std::mem::take(&mut self.event);
                self.facts.absorb(event, self.dialect, false);
                self.facts.done = self.walk.is_done();
                Vec::new()
            }
            Some(mut stream) => {
                let is_usage = stream.lines.has_data() && self.end_event(&mut stream, None);
                let held = self
                    .strip
                    .take()
                    .map(|strip| strip.held)
                    .unwrap_or_default();
                if is_usage && may_be_usage(&held) {
                    Vec::new()
                } else {
                    held
                }
            }
        }
    }

    /// Reads a piece of a stream. `on_end` learns where each event ends in it, and whether it is the
    /// usage chunk.
    fn read(&mut self, stream: &mut Stream, piece: &[u8], mut on_end: impl FnMut(usize, bool)) {
        let mut at = 0;
        // Where the present event began, if that was in this piece.
        let mut begin = stream.lines.is_fresh().then_some(0);
        let mut data = None;
        loop {
            if stream.lines.is_fresh()
                && let Some((length, has_text)) = stream.repeat.find(&piece[at..])
            {
                self.facts.repeat(has_text);
                at += length;
                begin = Some(at);
                on_end(at, false);
                continue;
            }
            match stream.lines.next(piece, &mut at) {
                None => return,
                Some(Token::LineBreak) => self.data(stream, b"\n"),
                Some(Token::Data(range)) => {
                    self.data(stream, &piece[range.clone()]);
                    data = Some(range.start);
                }
                Some(Token::End { has_data }) => {
                    let raw = begin
                        .zip(data.take())
                        .map(|(begin, data)| (&piece[begin..at], data - begin));
                    let is_usage = has_data && self.end_event(stream, raw);
                    begin = Some(at);
                    on_end(at, is_usage);
                }
            }
        }
    }

    fn data(&mut self, stream: &mut Stream, data: &[u8]) {
        stream.pieces += 1;
        stream.head.push(data);
        self.walk.feed(data, &mut self.event);
    }

    /// Takes in the event that has ended. `raw`: its bytes, if all of them stand in the present
    /// piece, and where its last data begins in them. True: it is the usage chunk.
    fn end_event(&mut self, stream: &mut Stream, raw: Option<(&[u8], usize)>) -> bool {
        let is_done = std::mem::take(&mut stream.head).is(b"[DONE]");
        let is_single = std::mem::take(&mut stream.pieces) == 1;
        let is_whole = self.walk.is_done();
        self.walk.restart();
        let knows_id = self.facts.response_id.is_some() || self.event.id.is_some();
        let mut event = std::mem::replace(&mut self.event, Event::new(knows_id));
        if is_done {
            event.kind = Kind::End;
        }
        match (event.only_text(), raw) {
            (Some(text), Some((raw, data))) if is_single && is_whole => {
                stream.repeat.learn(raw, data + text.start..data + text.end);
            }
            _ => stream.repeat.forget(),
        }
        let is_usage = is_whole
            && event.choices == Some(0)
            && event.has_usage
            && !event.has_extension
            && !event.is_error();
        self.facts.absorb(event, self.dialect, true);
        is_usage
    }

    fn read_and_strip(&mut self, stream: &mut Stream, strip: &mut Strip, piece: &[u8]) -> Passed {
        let held = strip.held.len();
        let joined = (held > 0).then(|| {
            strip.held.extend_from_slice(piece);
            std::mem::take(&mut strip.held)
        });
        let bytes = joined.as_deref().unwrap_or(piece);
        let mut cuts = Vec::new();
        let mut begin = 0;
        if let Some(is_cut) = strip.open_cr.take()
            && piece.first() == Some(&b'\n')
        {
            cuts.extend(is_cut.then_some((0, 1)));
            begin = 1;
        }
        let mut is_released = strip.is_released;
        self.read(stream, piece, |end, is_usage| {
            let end = held + end;
            let is_cut = is_usage && !is_released && may_be_usage(&bytes[begin..end]);
            cuts.extend(is_cut.then_some((begin, end)));
            strip.open_cr = (bytes[end - 1] == b'\r' && end == bytes.len()).then_some(is_cut);
            begin = end;
            is_released = false;
        });
        strip.is_released = is_released || !may_be_usage(&bytes[begin..]);
        let pass = if strip.is_released {
            bytes.len()
        } else {
            begin
        };
        if cuts.is_empty() && held == 0 && pass == piece.len() {
            return Passed::Same;
        }
        let mut passed = Vec::with_capacity(pass);
        let mut from = 0;
        for (start, end) in cuts {
            passed.extend_from_slice(&bytes[from..start]);
            from = end;
        }
        passed.extend_from_slice(&bytes[from..pass]);
        strip.held = bytes[pass..].to_vec();
        Passed::Changed(passed)
    }
}

/// Whether an event that begins with these bytes can be the usage chunk: it says nothing.
fn may_be_usage(event: &[u8]) -> bool {
    event.len() <= LONGEST_USAGE_CHUNK && memmem::find(event, b"\"choices\":[{").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_remembered_and_another_kind_of_event_forgotten() {
        let mut scanner = Scanner::new(Dialect::Chat, true, false);
        let delta =
            b"data: {\"choices\":[{\"delta\":{\"content\":\"ab\"},\"finish_reason\":null}]}\n\n";
        let found = |scanner: &Scanner| {
            scanner
                .stream
                .as_ref()
                .and_then(|stream| stream.repeat.find(delta))
        };
        for _ in 0..2 {
            scanner.feed(b"data: {\"choices\":[]}\n\n");
            assert_eq!(found(&scanner), None);
            scanner.feed(delta);
            assert_eq!(found(&scanner), Some((delta.len(), true)));
        }
    }
}
