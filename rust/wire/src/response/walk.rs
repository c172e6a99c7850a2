//! A JSON reader that is pushed: it takes a document in pieces of any size and keeps, of all it
//! has read, its path and the token it stands in.
//!
//! It validates nothing. Where a document is no JSON it loses its way, says no more, and never
//! holds more than [`Node::keep`] bytes of a token and a path of [`DEEPEST`].

use memchr::{memchr2, memchr3};

use super::event::Event;
use super::node::Node;

/// Containers on a path of interesting places, at most: `[{choices:[{delta:{tool_calls:[{function:{`.
const DEEPEST: usize = 12;

/// A key longer than this is none that matters.
const LONGEST_KEY: usize = 32;

/// A number or literal longer than this is none that matters.
const LONGEST_SCALAR: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a value, or in an array after one.
    Value,
    /// In an object, before a key.
    Member,
    Key,
    Colon,
    String,
    Scalar,
    /// Inside a container that does not matter, this many of its kind deep.
    Skip {
        open: u8,
        close: u8,
        depth: u32,
    },
    /// Inside a string of such a container.
    SkipString {
        open: u8,
        close: u8,
        depth: u32,
    },
    /// The document has ended.
    Done,
    /// This is no JSON.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    node: Node,
    is_array: bool,
}

/// Where in a document we are.
#[derive(Debug)]
pub(super) struct Walk {
    root: Node,
    state: State,
    /// The place of the value that comes next or is being read.
    node: Node,
    frames: [Frame; DEEPEST],
    depth: usize,
    /// The byte before was a backslash that escapes the next one.
    escaped: bool,
    /// The beginning of the token that earlier pieces broke off in.
    token: Vec<u8>,
    /// Bytes of that beginning, kept or not.
    length: usize,
}

impl Walk {
    pub(super) fn new(root: Node) -> Self {
        Self {
            root,
            state: State::Value,
            node: root,
            frames: [Frame {
                node: Node::Skip,
                is_array: false,
            }; DEEPEST],
            depth: 0,
            escaped: false,
            token: Vec::new(),
            length: 0,
        }
    }

    /// Begins a new document.
    pub(super) fn restart(&mut self) {
        self.state = State::Value;
        self.node = self.root;
        self.depth = 0;
        self.escaped = false;
        self.token.clear();
        self.length = 0;
    }

    /// Whether the document has ended.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Reads the next piece.
    pub(super) fn feed(&mut self, bytes: &[u8], event: &mut Event) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let rest = &bytes[at..];
            at += match self.state {
                State::Value => self.value(byte, event),
                State::Member => self.member(byte),
                State::Colon => self.colon(byte),
                State::Key | State::String => self.string(bytes, at, event),
                State::Scalar => self.scalar(rest, event),
                State::Skip { open, close, depth } => self.skip(rest, open, close, depth),
                State::SkipString { open, close, depth } => {
                    let (end, is_whole) = self.string_end(rest);
                    if is_whole {
                        self.state = State::Skip { open, close, depth };
                    }
                    end + usize::from(is_whole)
                }
                State::Done | State::Lost => return,
            };
        }
    }

    fn value(&mut self, byte: u8, event: &mut Event) -> usize {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b',' | 0xEF | 0xBB | 0xBF => {}
            b'"' => {
                event.enter(self.node);
                self.state = State::String;
            }
            b'{' => {
                event.enter(self.node);
                self.open(byte, b'}', State::Member, self.node);
            }
            b'[' => {
                event.enter(self.node);
                self.open(byte, b']', State::Value, self.node.element());
            }
            b']' if self.frame().is_some_and(|frame| frame.is_array) => self.close(),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                self.state = State::Scalar;
                return 0;
            }
            _ => self.state = State::Lost,
        }
        1
    }

    fn member(&mut self, byte: u8) -> usize {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b',' => {}
            b'"' => self.state = State::Key,
            b'}' => self.close(),
            _ => self.state = State::Lost,
        }
        1
    }

    fn colon(&mut self, byte: u8) -> usize {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b':' => self.state = State::Value,
            _ => self.state = State::Lost,
        }
        1
    }

    fn frame(&self) -> Option<Frame> {
        self.depth
            .checked_sub(1)
            .and_then(|top| self.frames.get(top))
            .copied()
    }

    fn open(&mut self, open: u8, close: u8, state: State, next: Node) {
        let is_array = open == b'[';
        if self.node == Node::Skip || (is_array && next == Node::Skip) || self.depth == DEEPEST {
            self.state = State::Skip {
                open,
                close,
                depth: 1,
            };
            return;
        }
        self.frames[self.depth] = Frame {
            node: self.node,
            is_array,
        };
        self.depth += 1;
        self.state = state;
        self.node = next;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.ended();
    }

    /// A value has ended.
    fn ended(&mut self) {
        match self.frame() {
            None => self.state = State::Done,
            Some(Frame {
                node,
                is_array: true,
            }) => {
                self.state = State::Value;
                self.node = node.element();
            }
            Some(Frame {
                is_array: false, ..
            }) => self.state = State::Member,
        }
    }

    /// Reads on in a key, or in a string that matters.
    fn string(&mut self, bytes: &[u8], at: usize, event: &mut Event) -> usize {
        let rest = &bytes[at..];
        let (end, is_whole) = self.string_end(rest);
        let part = &rest[..end];
        let is_key = self.state == State::Key;
        let limit = if is_key {
            LONGEST_KEY
        } else {
            event.keep(self.node)
        };
        if !is_whole {
            self.keep(part, limit);
            return end;
        }
        let length = self.length + part.len();
        let token = self.complete(part, limit);
        if is_key {
            let parent = self.frame().map_or(Node::Skip, |frame| frame.node);
            self.node = if length > LONGEST_KEY {
                Node::Skip
            } else {
                parent.child(token.bytes(part))
            };
            self.state = State::Colon;
        } else {
            event.string(self.node, token.bytes(part), length);
            if self.node == Node::Text {
                event.place_text((length == end).then_some(at..at + end));
            }
            self.ended();
        }
        self.reuse(token);
        end + 1
    }

    /// Reads on in a number, `true`, `false` or `null`.
    fn scalar(&mut self, rest: &[u8], event: &mut Event) -> usize {
        let is_end = |byte: &u8| {
            matches!(
                byte,
                b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' | b'"' | b':'
            )
        };
        let end = rest.iter().position(is_end);
        let part = &rest[..end.unwrap_or(rest.len())];
        if end.is_none() {
            self.keep(part, LONGEST_SCALAR);
            return part.len();
        }
        let token = self.complete(part, LONGEST_SCALAR);
        event.scalar(self.node, token.bytes(part));
        self.reuse(token);
        self.ended();
        part.len()
    }

    /// Where the string ends in which `rest` begins: the closing quote, or false and all of it.
    fn string_end(&mut self, rest: &[u8]) -> (usize, bool) {
        let mut at = usize::from(std::mem::take(&mut self.escaped));
        while let Some(found) = rest.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
            at += found;
            if rest[at] == b'"' {
                return (at, true);
            }
            self.escaped = at + 1 == rest.len();
            at += 2;
        }
        (rest.len(), false)
    }

    fn skip(&mut self, rest: &[u8], open: u8, close: u8, depth: u32) -> usize {
        let Some(found) = memchr3(open, close, b'"', rest) else {
            return rest.len();
        };
        match rest[found] {
            b'"' => self.state = State::SkipString { open, close, depth },
            byte if byte == open => {
                self.state = State::Skip {
                    open,
                    close,
                    depth: depth.saturating_add(1),
                }
            }
            _ if depth > 1 => {
                self.state = State::Skip {
                    open,
                    close,
                    depth: depth - 1,
                }
            }
            _ => self.ended(),
        }
        found + 1
    }

    /// Keeps the beginning of a token that is not whole yet.
    fn keep(&mut self, part: &[u8], limit: usize) {
        self.length = self.length.saturating_add(part.len());
        let room = limit.saturating_sub(self.token.len()).min(part.len());
        self.token.extend_from_slice(&part[..room]);
    }

    /// Takes the token that ends with `part`.
    fn complete(&mut self, part: &[u8], limit: usize) -> Token {
        if self.length == 0 {
            return Token { kept: None, limit };
        }
        self.keep(part, limit);
        Token {
            kept: Some(std::mem::take(&mut self.token)),
            limit,
        }
    }

    fn reuse(&mut self, token: Token) {
        self.length = 0;
        if let Some(mut kept) = token.kept {
            kept.clear();
            self.token = kept;
        }
    }
}

/// A whole token: kept from earlier pieces, or standing in the present one.
struct Token {
    kept: Option<Vec<u8>>,
    limit: usize,
}

impl Token {
    fn bytes<'a>(&'a self, part: &'a [u8]) -> &'a [u8] {
        match &self.kept {
            Some(kept) => kept,
            None => &part[..part.len().min(self.limit)],
        }
    }
}
