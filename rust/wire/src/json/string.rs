//! Strings: found by their quotes, measured without being decoded.

use std::borrow::Cow;

use memchr::memchr;

use super::Cursor;
use super::block::WIDTH;
use crate::BodyError;

/// Where a string stands, and what its escapes do to its size.
#[derive(Clone, Copy, Default)]
pub(crate) struct Str {
    /// After the opening quote.
    pub(crate) start: usize,
    /// At the closing quote.
    pub(crate) end: usize,
    /// Bytes by which the decoded string is shorter than the raw one.
    shrink: usize,
    /// UTF-8 continuation bytes that `\u` escapes stand for.
    tails: usize,
    /// Wide characters that `\u` escapes stand for.
    wide: usize,
}

/// How much text there is. Sizes are those of the decoded strings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) bytes: u64,
    pub(crate) chars: u64,
    pub(crate) wide: u64,
    /// Bytes of the longest string.
    pub(crate) longest: u64,
    /// Bytes of the raw strings.
    raw: u64,
    counting: Counting,
}

/// Which strings of a value are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Counting {
    #[default]
    All,
    /// Not the keys of objects.
    Values,
    Nothing,
}

impl Text {
    /// A count of strings that leaves out the keys of objects.
    pub(crate) fn of_values() -> Self {
        Self {
            counting: Counting::Values,
            ..Self::default()
        }
    }

    /// A sink for text that is not counted.
    pub(crate) fn ignored() -> Self {
        Self {
            counting: Counting::Nothing,
            ..Self::default()
        }
    }

    /// Counts a key of an object.
    pub(crate) fn add_key(&mut self, cursor: &Cursor<'_>, key: Str) {
        if self.counting == Counting::All {
            self.add(cursor, key);
        }
    }

    /// Counts what another count found.
    pub(crate) fn join(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.chars += other.chars;
        self.wide += other.wide;
        self.longest = self.longest.max(other.longest);
        self.raw += other.raw;
    }

    /// Counts a string.
    pub(crate) fn add(&mut self, cursor: &Cursor<'_>, string: Str) {
        if self.counting == Counting::Nothing {
            return;
        }
        let raw = cursor.span(string.start, string.end);
        let bytes = raw.len() - string.shrink;
        let (mut tails, mut wide) = (string.tails, string.wide);
        if !cursor.is_ascii && !raw.is_ascii() {
            tails += count(raw, |&byte| byte & 0xC0 == 0x80);
            wide += wide_characters(raw);
        }
        self.longest = self.longest.max(bytes as u64);
        self.raw += raw.len() as u64;
        self.bytes += bytes as u64;
        self.chars += (bytes - tails) as u64;
        self.wide += wide as u64;
    }
}

/// Whether this character belongs to a script that tokenizes at about one token a character:
/// CJK ideographs, kana, Hangul syllables, full-width forms.
const fn is_wide(character: u32) -> bool {
    matches!(character,
        0x3000..=0x9FFF | 0xAC00..=0xD7FF | 0xF900..=0xFAFF | 0xFF00..=0xFFFF | 0x2_0000..=0x3_FFFF)
}

/// Counts [`is_wide`] characters of valid UTF-8 by their first two bytes, without decoding.
fn wide_characters(utf8: &[u8]) -> usize {
    let starts_wide = |lead: u8, next: u8| {
        matches!(lead, 0xE3..=0xE9 | 0xEB..=0xED)
            || (lead == 0xEA && next >= 0xB0)
            || (lead == 0xEF && matches!(next, 0xA4..=0xAB | 0xBC..=0xBF))
            || (lead == 0xF0 && next >= 0xA0)
    };
    let pairs = utf8.iter().zip(utf8.get(1..).unwrap_or_default());
    pairs
        .filter(|&(&lead, &next)| starts_wide(lead, next))
        .count()
}

/// Counts in bytes, 128 at a time: that compiles to vector instructions.
fn count(bytes: &[u8], test: impl Fn(&u8) -> bool) -> usize {
    let part = |part: &[u8]| part.iter().map(|byte| u8::from(test(byte))).sum::<u8>();
    bytes
        .chunks(128)
        .map(|bytes| usize::from(part(bytes)))
        .sum()
}

/// The letters that stand for one byte after a backslash.
const SIMPLE_ESCAPES: [bool; 256] = {
    let letters = b"\"\\/bfnrt";
    let mut simple = [false; 256];
    let mut at = 0;
    while at < letters.len() {
        simple[letters[at] as usize] = true;
        at += 1;
    }
    simple
};

impl<'a> Cursor<'a> {
    /// Reads past the next value and counts it as the text that it is in JSON: keys, brackets,
    /// numbers and all, as a chat template renders the description of a tool.
    pub(crate) fn source_text(&mut self, text: &mut Text) -> Result<(), BodyError> {
        self.peek()?;
        let (start, raw) = (self.at, text.raw);
        self.skip(text)?;
        let plain = (self.at - start) as u64 - (text.raw - raw);
        text.bytes += plain;
        text.chars += plain;
        Ok(())
    }

    /// Takes the string of which [`peek`](Self::peek) saw the opening quote.
    pub(crate) fn string(&mut self) -> Result<Str, BodyError> {
        self.at += 1;
        let mut string = Str {
            start: self.at,
            ..Str::default()
        };
        let mut at = self.at;
        while at < self.bytes.len() {
            let start = at - at % WIDTH;
            let mut specials = self.specials_of(start) & (u64::MAX << (at % WIDTH));
            at = start + WIDTH;
            while specials != 0 {
                let bit = specials.trailing_zeros();
                let here = start + bit as usize;
                match self.bytes[here] {
                    b'"' => {
                        string.end = here;
                        self.at = here + 1;
                        return Ok(string);
                    }
                    b'\\' if self.is_simple_escape(here) => {
                        string.shrink += 1;
                        if bit >= 62 {
                            at = here + 2;
                            break;
                        }
                        specials &= u64::MAX << (bit + 2);
                    }
                    b'\\' => {
                        self.at = here;
                        at = self.unicode_in(&mut string)?;
                        break;
                    }
                    _ => {
                        self.at = here;
                        return self.fail("a control character in a string");
                    }
                }
            }
        }
        self.at = self.bytes.len();
        self.fail("unexpected end")
    }

    /// Whether the backslash here and the letter after it stand for one byte.
    #[inline]
    fn is_simple_escape(&self, at: usize) -> bool {
        self.bytes
            .get(at + 1)
            .is_some_and(|&letter| SIMPLE_ESCAPES[letter as usize])
    }

    /// Takes the `\u` escape here into account. Where it ends.
    #[cold]
    fn unicode_in(&self, string: &mut Str) -> Result<usize, BodyError> {
        let (character, length) = match self.escape(self.at) {
            Ok(escape) => escape,
            Err(problem) => return self.fail(problem),
        };
        let utf8 = character.len_utf8();
        string.shrink += length - utf8;
        string.tails += utf8 - 1;
        string.wide += usize::from(is_wide(character.into()));
        Ok(self.at + length)
    }

    /// What the escape at this backslash stands for, and its raw length.
    fn escape(&self, at: usize) -> Result<(char, usize), &'static str> {
        let character = match self.bytes.get(at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'u') => return self.unicode_escape(at),
            _ => return Err("an invalid escape"),
        };
        Ok((character, 2))
    }

    fn unicode_escape(&self, at: usize) -> Result<(char, usize), &'static str> {
        let high = self.code_unit(at).ok_or("an invalid escape")?;
        if let Some(character) = char::from_u32(high) {
            return Ok((character, 6));
        }
        let low = self
            .code_unit(at + 6)
            .filter(|low| high < 0xDC00 && (0xDC00..0xE000).contains(low));
        let character =
            low.and_then(|low| char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00)));
        character
            .map(|character| (character, 12))
            .ok_or("a lone surrogate")
    }

    /// The value of the `\uXXXX` that begins here, if one does.
    fn code_unit(&self, at: usize) -> Option<u32> {
        let digits = self.bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |value, &digit| {
            Some(value << 4 | char::from(digit).to_digit(16)?)
        })
    }

    /// The decoded string.
    pub(crate) fn decode(&self, string: Str) -> Cow<'a, str> {
        match self.decode_bytes(string) {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// The UTF-8 of the decoded string, as comparisons with keys want it.
    #[inline]
    pub(crate) fn decode_bytes(&self, string: Str) -> Cow<'a, [u8]> {
        if string.shrink == 0 {
            return Cow::Borrowed(self.span(string.start, string.end));
        }
        Cow::Owned(self.unescape(string))
    }

    fn unescape(&self, string: Str) -> Vec<u8> {
        let mut decoded = Vec::with_capacity(string.end - string.start);
        let mut at = string.start;
        while at < string.end {
            let rest = self.span(at, string.end);
            let plain = memchr(b'\\', rest).unwrap_or(rest.len());
            decoded.extend_from_slice(&rest[..plain]);
            at += plain;
            if let Ok((character, length)) = self.escape(at) {
                decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                at += length;
            } else {
                break;
            }
        }
        decoded
    }
}

/// Decodes the inside of a string that may be broken or cut short, as well as can be.
pub(crate) fn unescape(raw: &[u8]) -> String {
    let string = Str {
        end: raw.len(),
        shrink: 1,
        ..Str::default()
    };
    Cursor::unchecked(raw, false).decode(string).into_owned()
}
