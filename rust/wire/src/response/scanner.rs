//! Reads an answer as it streams, and passes its bytes on.

use memchr::memmem;

use crate::Dialect;

use super::ResponseFacts;
use super::event::{Event, Kind};
use super::node::Node;
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
    /// Framing, where the answer is a stream.
    lines: Option<Lines>,
    /// The beginning of the event's data, to know `[DONE]`.
    head: Head,
    strip: Option<Strip>,
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
    /// The last event was cut after a CR; an LF that follows goes with it.
    cut_cr: bool,
}

impl Scanner {
    /// A reader for one answer. `stream`: it is a stream of events, else one JSON document.
    /// `strip_usage`: the client did not ask for the usage chunk, so it is cut.
    pub fn new(dialect: Dialect, stream: bool, strip_usage: bool) -> Self {
        Self {
            dialect,
            facts: ResponseFacts::default(),
            walk: Walk::new(Node::root(dialect)),
            event: Event::default(),
            lines: stream.then(Lines::new),
            head: Head::default(),
            strip: (stream && strip_usage && dialect.usage_on_request()).then(Strip::default),
        }
    }

    /// What the answer has said so far.
    pub fn facts(&self) -> &ResponseFacts {
        &self.facts
    }

    /// Reads the next piece.
    pub fn feed(&mut self, piece: &[u8]) -> Passed {
        if self.lines.is_none() {
            self.walk.feed(piece, &mut self.event);
            return Passed::Same;
        }
        if self.strip.is_some() {
            self.feed_and_strip(piece)
        } else {
            self.feed_through(piece)
        }
    }

    /// Ends the answer. What was held back.
    pub fn finish(&mut self) -> Vec<u8> {
        match &self.lines {
            None => {
                let event = std::mem::take(&mut self.event);
                self.facts.absorb(event, self.dialect, false);
                self.facts.done = self.walk.is_done();
                Vec::new()
            }
            Some(lines) => {
                let is_cut = lines.has_data() && self.end_event();
                self.lines = Some(Lines::new());
                let held = self
                    .strip
                    .take()
                    .map(|strip| strip.held)
                    .unwrap_or_default();
                if is_cut && may_be_usage(&held) {
                    Vec::new()
                } else {
                    held
                }
            }
        }
    }

    fn feed_through(&mut self, piece: &[u8]) -> Passed {
        let mut at = 0;
        while let Some(token) = self
            .lines
            .as_mut()
            .and_then(|lines| lines.next(piece, &mut at))
        {
            self.token(&token);
        }
        Passed::Same
    }

    fn feed_and_strip(&mut self, piece: &[u8]) -> Passed {
        let Some(mut strip) = self.strip.take() else {
            return Passed::Same;
        };
        let mut cuts = Vec::new();
        let held = strip.held.len();
        let joined = (held > 0).then(|| {
            strip.held.extend_from_slice(piece);
            std::mem::take(&mut strip.held)
        });
        let bytes = joined.as_deref().unwrap_or(piece);
        if std::mem::take(&mut strip.cut_cr) && piece.first() == Some(&b'\n') {
            cuts.push((0, 1));
        }
        let mut begin = cuts.len();
        let mut at = 0;
        while let Some(token) = self
            .lines
            .as_mut()
            .and_then(|lines| lines.next(piece, &mut at))
        {
            let is_usage = self.token(&token);
            if let Token::End { at, .. } = token {
                let end = held + at;
                if is_usage && !strip.is_released && may_be_usage(&bytes[begin..end]) {
                    cuts.push((begin, end));
                    strip.cut_cr = end == bytes.len() && bytes[end - 1] == b'\r';
                }
                begin = end;
                strip.is_released = false;
            }
        }
        strip.is_released |= !may_be_usage(&bytes[begin..]);
        let pass = if strip.is_released {
            bytes.len()
        } else {
            begin
        };
        let passed = if cuts.is_empty() && held == 0 && pass == piece.len() {
            Passed::Same
        } else {
            let mut kept = Vec::with_capacity(pass);
            let mut from = 0;
            for (start, end) in cuts {
                kept.extend_from_slice(&bytes[from..start]);
                from = end;
            }
            kept.extend_from_slice(&bytes[from..pass]);
            Passed::Changed(kept)
        };
        strip.held = bytes[pass..].to_vec();
        self.strip = Some(strip);
        passed
    }

    /// True: the event that has ended is the usage chunk.
    fn token(&mut self, token: &Token<'_>) -> bool {
        match *token {
            Token::Data(data) => {
                self.head.push(data);
                self.walk.feed(data, &mut self.event);
                false
            }
            Token::End { has_data, .. } => has_data && self.end_event(),
        }
    }

    fn end_event(&mut self) -> bool {
        let is_done = std::mem::take(&mut self.head).is(b"[DONE]");
        let is_whole = self.walk.is_done();
        self.walk.restart();
        let knows_id = self.facts.response_id.is_some() || self.event.id.is_some();
        let mut event = std::mem::replace(&mut self.event, Event::new(knows_id));
        if is_done {
            event.kind = Kind::End;
        }
        let is_usage = is_whole
            && event.choices == Some(0)
            && event.has_usage
            && !event.has_extension
            && !event.is_error();
        self.facts.absorb(event, self.dialect, true);
        is_usage
    }
}

/// Whether an event that begins with these bytes can be the usage chunk: it says nothing.
fn may_be_usage(event: &[u8]) -> bool {
    event.len() <= LONGEST_USAGE_CHUNK && memmem::find(event, b"\"choices\":[{").is_none()
}
