//! Server-sent events: lines to events, in pieces of any size.
//!
//! Source: the WHATWG HTML standard, section 9.2.6: lines end with CRLF, LF or CR, a blank line ends
//! an event, `data` lines of one event are joined by newlines, a line that begins with a colon is a
//! comment, and a BOM may stand at the very start.

use std::ops::Range;

use memchr::memchr2;

const BOM: &[u8] = &[0xEF, 0xBB, 0xBF];
const DATA: &[u8] = b"data:";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// So many bytes of it were read, all as in `data:`.
    Start(usize),
    /// After `data:`, where one space is skipped.
    Colon,
    Data,
    /// A comment, or another field.
    Other,
}

impl Default for Line {
    fn default() -> Self {
        Self::Start(0)
    }
}

/// What comes next in a stream of events. Offsets are into the piece that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A piece of an event's data.
    Data(Range<usize>),
    /// The event's data goes on in another line.
    LineBreak,
    /// A blank line ended the event. Without data it is no event.
    End {
        /// It had data.
        has_data: bool,
    },
}

/// Where in a stream of events we are.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Line,
    /// Bytes of a BOM that were read; 3 when there is none to come.
    bom: usize,
    /// The last line ended with CR, so an LF that follows belongs to it.
    after_cr: bool,
    /// The event has a data line already.
    has_data: bool,
}

impl Lines {
    /// Whether a line begins here, of an event without data so far.
    pub(super) fn is_fresh(&self) -> bool {
        self.line == Line::Start(0) && self.bom == BOM.len() && !self.after_cr && !self.has_data
    }

    /// Whether data came that no blank line has ended yet.
    pub(super) fn has_data(&self) -> bool {
        self.has_data || matches!(self.line, Line::Colon | Line::Data)
    }

    /// Reads one token of the piece from `at`, which it moves on. None: the piece is used up.
    pub(super) fn next(&mut self, piece: &[u8], at: &mut usize) -> Option<Token> {
        while let Some(&byte) = piece.get(*at) {
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                *at += 1;
                continue;
            }
            match self.line {
                Line::Start(0) if self.bom < BOM.len() && byte == BOM[self.bom] => {
                    self.bom += 1;
                    *at += 1;
                }
                Line::Start(read) => {
                    self.bom = BOM.len();
                    if byte == b'\n' || byte == b'\r' {
                        let is_blank = read == 0;
                        self.end_line(piece, at);
                        if is_blank {
                            let has_data = std::mem::take(&mut self.has_data);
                            return Some(Token::End { has_data });
                        }
                    } else if byte == DATA[read] {
                        *at += 1;
                        self.line = if read + 1 == DATA.len() {
                            Line::Colon
                        } else {
                            Line::Start(read + 1)
                        };
                    } else {
                        self.line = Line::Other;
                    }
                }
                Line::Colon => {
                    if byte == b' ' {
                        *at += 1;
                    }
                    self.line = Line::Data;
                    if std::mem::replace(&mut self.has_data, true) {
                        return Some(Token::LineBreak);
                    }
                }
                Line::Data | Line::Other => {
                    let start = *at;
                    let rest = &piece[start..];
                    let line = memchr2(b'\n', b'\r', rest);
                    let end = start + line.unwrap_or(rest.len());
                    let is_data = self.line == Line::Data;
                    *at = end;
                    if line.is_some() {
                        self.end_line(piece, at);
                    }
                    if is_data && end > start {
                        return Some(Token::Data(start..end));
                    }
                }
            }
        }
        None
    }

    /// Takes the end of line that stands at `at`.
    fn end_line(&mut self, piece: &[u8], at: &mut usize) {
        self.line = Line::Start(0);
        if piece[*at] == b'\r' {
            *at += 1;
            match piece.get(*at) {
                Some(b'\n') => *at += 1,
                Some(_) => {}
                None => self.after_cr = true,
            }
        } else {
            *at += 1;
        }
    }
}
