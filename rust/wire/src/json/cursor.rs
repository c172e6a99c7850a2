//! Position in a document, and the grammar of values, objects and arrays.
//!
//! The verdict on every document is that of `serde_json` (`tests/oracle.rs` holds it to that):
//! RFC 8259, UTF-8, no lone surrogates, no number beyond `f64`, no BOM, and at most
//! [`MAX_DEPTH`] nested containers.

use super::block::Block;
use super::{Number, Str, Text};
use crate::BodyError;

/// Containers that may be open at once. Source: `serde_json`'s recursion limit of 128, which
/// refuses the 128th.
const MAX_DEPTH: u8 = 127;

/// Reads one document from left to right.
pub(crate) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    /// Some byte above 0x7F stands somewhere, so characters must be counted.
    pub(super) is_ascii: bool,
    /// Where the block begins whose special bytes are known, and which these are.
    block: usize,
    specials: u64,
    depth: u8,
}

/// Which separator comes next in an object or array.
#[derive(Default)]
pub(crate) struct Sequence {
    begun: bool,
}

/// A key of an object. Its value has not been read yet.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub(crate) key: Str,
    /// Where the comma before it stands; none before the first.
    pub(crate) comma: Option<usize>,
    /// Where its key's opening quote stands.
    pub(crate) start: usize,
}

impl<'a> Cursor<'a> {
    /// Checks that the document is UTF-8.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, BodyError> {
        let is_ascii = bytes.is_ascii();
        if !is_ascii && let Err(error) = std::str::from_utf8(bytes) {
            return Err(BodyError::Syntax {
                problem: "invalid UTF-8",
                at: error.valid_up_to(),
            });
        }
        Ok(Self::unchecked(bytes, is_ascii))
    }

    /// For bytes that are UTF-8 already, or need not be.
    pub(super) fn unchecked(bytes: &'a [u8], is_ascii: bool) -> Self {
        Self {
            bytes,
            at: 0,
            is_ascii,
            block: 0,
            specials: Block::at(bytes, 0).specials(),
            depth: 0,
        }
    }

    /// The special bytes of the block that begins here.
    #[inline]
    pub(super) fn specials_of(&mut self, block: usize) -> u64 {
        if block != self.block {
            self.block = block;
            self.specials = Block::at(self.bytes, block).specials();
        }
        self.specials
    }

    /// Judges a whole document.
    pub(crate) fn document(bytes: &'a [u8]) -> Result<(), BodyError> {
        let mut cursor = Self::new(bytes)?;
        cursor.ignore()?;
        cursor.end()
    }

    /// The byte that is read next.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The bytes of a span of the document; empty where there is no such span.
    pub(crate) fn span(&self, start: usize, end: usize) -> &'a [u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    pub(super) fn byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(super) fn fail<T>(&self, problem: &'static str) -> Result<T, BodyError> {
        let problem = if self.at >= self.bytes.len() {
            "unexpected end"
        } else {
            problem
        };
        Err(BodyError::Syntax {
            problem,
            at: self.at,
        })
    }

    /// The first byte of the next token, without taking it.
    pub(crate) fn peek(&mut self) -> Result<u8, BodyError> {
        loop {
            match self.byte() {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                Some(byte) => return Ok(byte),
                None => return self.fail("unexpected end"),
            }
        }
    }

    /// Nothing but white space may follow.
    pub(crate) fn end(&mut self) -> Result<(), BodyError> {
        match self.peek() {
            Err(_) => Ok(()),
            Ok(_) => self.fail("characters after the document"),
        }
    }

    fn open(&mut self) -> Result<Sequence, BodyError> {
        if self.depth == MAX_DEPTH {
            return self.fail("nested too deep");
        }
        self.depth += 1;
        self.at += 1;
        Ok(Sequence::default())
    }

    /// Takes the `{` that [`peek`](Self::peek) saw.
    pub(crate) fn open_object(&mut self) -> Result<Sequence, BodyError> {
        self.open()
    }

    /// Takes the `[` that [`peek`](Self::peek) saw.
    pub(crate) fn open_array(&mut self) -> Result<Sequence, BodyError> {
        self.open()
    }

    /// The next key of an object whose last value has been read; none at its end.
    pub(crate) fn member(&mut self, sequence: &mut Sequence) -> Result<Option<Member>, BodyError> {
        let mut comma = None;
        let mut next = self.peek()?;
        if next == b'}' {
            self.at += 1;
            self.depth -= 1;
            return Ok(None);
        }
        if sequence.begun {
            if next != b',' {
                return self.fail("expected ',' or '}'");
            }
            comma = Some(self.at);
            self.at += 1;
            next = self.peek()?;
        }
        sequence.begun = true;
        if next != b'"' {
            return self.fail("expected a key");
        }
        let start = self.at;
        let key = self.string()?;
        if self.peek()? != b':' {
            return self.fail("expected ':'");
        }
        self.at += 1;
        Ok(Some(Member { key, comma, start }))
    }

    /// Whether an array whose last value has been read has another one.
    pub(crate) fn element(&mut self, sequence: &mut Sequence) -> Result<bool, BodyError> {
        let next = self.peek()?;
        if next == b']' {
            self.at += 1;
            self.depth -= 1;
            return Ok(false);
        }
        if sequence.begun {
            if next != b',' {
                return self.fail("expected ',' or ']'");
            }
            self.at += 1;
            if self.peek()? == b']' {
                return self.fail("expected a value");
            }
        }
        sequence.begun = true;
        Ok(true)
    }

    /// Takes this literal, of which [`peek`](Self::peek) saw the first byte.
    fn literal(&mut self, word: &'static [u8]) -> Result<(), BodyError> {
        if !self.bytes[self.at..].starts_with(word) {
            return self.fail("expected a value");
        }
        self.at += word.len();
        Ok(())
    }

    /// Reads past the next value. Its strings, keys too, are added to `text`.
    pub(crate) fn skip(&mut self, text: &mut Text) -> Result<(), BodyError> {
        match self.peek()? {
            b'"' => {
                let string = self.string()?;
                text.add(self, string);
            }
            b'{' => {
                let mut sequence = self.open_object()?;
                while let Some(member) = self.member(&mut sequence)? {
                    text.add_key(self, member.key);
                    self.skip(text)?;
                }
            }
            b'[' => {
                let mut sequence = self.open_array()?;
                while self.element(&mut sequence)? {
                    self.skip(text)?;
                }
            }
            b'n' => self.literal(b"null")?,
            b't' => self.literal(b"true")?,
            b'f' => self.literal(b"false")?,
            b'-' | b'0'..=b'9' => {
                self.number()?;
            }
            _ => return self.fail("expected a value"),
        }
        Ok(())
    }

    /// Reads past the next value.
    pub(crate) fn ignore(&mut self) -> Result<(), BodyError> {
        self.skip(&mut Text::ignored())
    }

    /// The next value if it is `true` or `false`; any other value is read past.
    pub(crate) fn boolean(&mut self) -> Result<Option<bool>, BodyError> {
        let found = match self.peek()? {
            b't' => Some(true),
            b'f' => Some(false),
            _ => None,
        };
        self.ignore()?;
        Ok(found)
    }

    /// The next value if it is an integer; any other value is read past.
    pub(crate) fn integer(&mut self) -> Result<Option<i64>, BodyError> {
        match self.peek()? {
            b'-' | b'0'..=b'9' => {
                let number = self.number()?;
                Ok(self.parse(number))
            }
            _ => {
                self.ignore()?;
                Ok(None)
            }
        }
    }

    /// The value of an integer that fits 64 bits.
    pub(crate) fn parse(&self, number: Number) -> Option<i64> {
        let digits = number
            .integral
            .then(|| self.span(number.start, number.end))?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}
