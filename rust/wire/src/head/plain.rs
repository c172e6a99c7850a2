//! Messages whose heads leave no room for opinion.

use memchr::memchr;

use super::{Headers, Line, is_one_of};

/// A head with more lines, or more bytes, is not plain.
const MOST_LINES: usize = 256;
const LONGEST: usize = 64 * 1024;

/// Headers that change how the message is framed or what becomes of the connection.
const FRAMING: &[&str] = &[
    "expect",
    "http2-settings",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A POST whose head every reader of HTTP understands in the same way.
///
/// It stands whole in the bytes read, its lines end with CRLF and are not folded, its only framing
/// is one `Content-Length`, and it keeps its connection. What is not plain is not wrong: another
/// reader decides, so nothing here needs an opinion on what an unusual head might mean.
#[derive(Debug, PartialEq, Eq)]
pub struct PlainRequest<'a> {
    /// Path and query.
    pub target: &'a [u8],
    /// Headers as sent, values without the spaces before them.
    pub headers: Headers,
    /// Bytes of the head, its empty line included.
    pub size: usize,
    /// Bytes of the body, as announced.
    pub length: usize,
}

impl<'a> PlainRequest<'a> {
    /// Reads the head that begins these bytes, if it is plain and all there.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (start, at) = line(bytes, 0)?;
        let target = start.strip_prefix(b"POST ")?.strip_suffix(b" HTTP/1.1")?;
        if target.first() != Some(&b'/') || !target.iter().all(|&byte| is_target(byte)) {
            return None;
        }
        let (headers, size, length) = headers(bytes, at)?;
        Some(Self {
            target,
            headers,
            size,
            length,
        })
    }
}

/// An answer that is plain as a [`PlainRequest`] is, its body whole and nothing behind it.
#[derive(Debug, PartialEq, Eq)]
pub struct PlainAnswer<'a> {
    /// A final one that has a body.
    pub status: u16,
    /// The phrase beside it.
    pub reason: &'a [u8],
    /// Headers as sent, values without the spaces before them.
    pub headers: Headers,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> PlainAnswer<'a> {
    /// Takes these bytes for one answer, if they are one and plain.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (start, at) = line(bytes, 0)?;
        let (status, reason) = start.strip_prefix(b"HTTP/1.1 ")?.split_at_checked(3)?;
        let status = std::str::from_utf8(status).ok()?.parse().ok()?;
        let reason = reason.strip_prefix(b" ")?;
        let is_plain = (200..600).contains(&status)
            && !matches!(status, 204 | 304)
            && reason
                .iter()
                .all(|&byte| byte.is_ascii_graphic() || byte == b' ');
        if !is_plain {
            return None;
        }
        let (headers, size, length) = headers(bytes, at)?;
        let body = bytes.get(size..).filter(|body| body.len() == length)?;
        Some(Self {
            status,
            reason,
            headers,
            body,
        })
    }
}

/// The headers that begin here, the bytes of the head, and those of the body.
fn headers(bytes: &[u8], mut at: usize) -> Option<(Headers, usize, usize)> {
    let mut headers = Headers::default();
    let mut length = None;
    loop {
        let (text, next) = line(bytes, at)?;
        at = next;
        if text.is_empty() {
            return Some((headers, at, length?)).filter(|_| at <= LONGEST);
        }
        let (name, value) = header(text)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            if length.is_some() {
                return None;
            }
            length = Some(digits(value)?);
        } else if name.eq_ignore_ascii_case(b"connection") {
            if !value.eq_ignore_ascii_case(b"keep-alive") {
                return None;
            }
        } else if is_one_of(name, FRAMING) {
            return None;
        }
        if headers.len() == MOST_LINES {
            return None;
        }
        headers.extend([(name, value)]);
    }
}

/// The line that begins here without its CRLF, and where the next one begins.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..)?;
    let end = memchr(b'\n', rest)?;
    Some((rest.get(..end)?.strip_suffix(b"\r")?, at + end + 1))
}

fn header(line: &[u8]) -> Option<Line<'_>> {
    let colon = memchr(b':', line)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let start = value.iter().position(|&byte| byte != b' ');
    let value = &value[start.unwrap_or(value.len())..];
    // Whether spaces at the end belong to a value is a matter of opinion.
    let is_plain = !name.is_empty()
        && name.iter().all(|&byte| is_token(byte))
        && value.iter().all(|&byte| byte >= b' ' && byte != 0x7F)
        && value.last() != Some(&b' ');
    is_plain.then_some((name, value))
}

/// A number of a length that cannot overflow.
fn digits(value: &[u8]) -> Option<usize> {
    let is_plain = (1..=15).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    is_plain
        .then(|| std::str::from_utf8(value).ok()?.parse().ok())
        .flatten()
}

fn is_target(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'#'
}

/// RFC 9110, 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
