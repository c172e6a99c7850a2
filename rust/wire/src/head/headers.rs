//! The headers of one message.

use std::ops::Range;

use super::is_one_of;

/// A header as received: name and value.
pub type Line<'a> = (&'a [u8], &'a [u8]);

/// Headers as received, in order, repeats included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers {
    bytes: Vec<u8>,
    lines: Vec<(Range<usize>, Range<usize>)>,
}

impl Headers {
    /// The number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Bytes of all names and values.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Every header.
    pub fn iter(&self) -> impl Iterator<Item = Line<'_>> {
        let part = |span: &Range<usize>| &self.bytes[span.clone()];
        self.lines
            .iter()
            .map(move |(name, value)| (part(name), part(value)))
    }

    /// The value under this name, in any case; of repeats, the last.
    pub fn get(&self, wanted: &[u8]) -> Option<&[u8]> {
        self.iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .last()
            .map(|(_, value)| value)
    }

    /// The headers that `Connection` lists: they stop here, too.
    pub(super) fn listed(&self) -> Vec<&[u8]> {
        self.iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"))
            .flat_map(|(_, value)| value.split(|&byte| byte == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|token| !is_one_of(token, &["keep-alive", "close"]))
            .collect()
    }

    fn store(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

impl<'a> Extend<Line<'a>> for Headers {
    fn extend<T: IntoIterator<Item = Line<'a>>>(&mut self, lines: T) {
        for (name, value) in lines {
            let line = (self.store(name), self.store(value));
            self.lines.push(line);
        }
    }
}

impl<'a> FromIterator<Line<'a>> for Headers {
    fn from_iter<T: IntoIterator<Item = Line<'a>>>(lines: T) -> Self {
        let mut headers = Self::default();
        headers.extend(lines);
        headers
    }
}
