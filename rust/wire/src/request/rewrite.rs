//! The body that the worker gets: the client's own bytes, but for the spans cut and spliced.

use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;

use crate::BodyError;

use super::fields::Optional;
use super::{RequestFacts, cut};

/// What to change on the way to the worker, beside the fields that only the router reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Splice<'a> {
    /// Make a stream report its usage.
    pub include_usage: bool,
    /// Take these out of the client's body.
    pub drop: &'a [Optional],
    /// `session_id` for a body that has none.
    pub session_id: Option<&'a str>,
    /// `rid` for a body that has none.
    pub rid: Option<&'a str>,
    /// `priority` for a body that has none.
    pub priority: Option<i64>,
    /// `routed_dp_rank` for a body that has none.
    pub dp_rank: Option<u32>,
}

impl Splice<'_> {
    /// What to splice in for this field, as JSON.
    fn value(&self, field: Optional) -> Option<String> {
        match field {
            Optional::SessionId => self.session_id.map(quoted),
            Optional::Rid => self.rid.map(quoted),
            Optional::Priority => self.priority.map(|priority| priority.to_string()),
            Optional::DpRank => self.dp_rank.map(|rank| rank.to_string()),
        }
    }
}

/// What the body says about `stream_options.include_usage`. Offsets are into the body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum StreamOptions {
    /// No `stream_options`.
    #[default]
    Absent,
    /// `null`, in this span.
    Null(usize, usize),
    /// An object without `include_usage`.
    Silent { open: usize, is_empty: bool },
    /// `include_usage` is false or null, in this span.
    Declines(usize, usize),
    /// `include_usage` is true.
    Asks,
}

/// A span of the body and what stands there instead.
#[derive(Debug, PartialEq, Eq)]
struct Edit {
    start: usize,
    end: usize,
    with: Cow<'static, str>,
}

impl Edit {
    fn new((start, end): (usize, usize), with: impl Into<Cow<'static, str>>) -> Self {
        Self {
            start,
            end,
            with: with.into(),
        }
    }
}

/// A part of a changed body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A span of the client's own body.
    Kept(Range<usize>),
    /// Bytes that stand there instead of some of the client's.
    Spliced(&'a [u8]),
}

/// A changed body, before it is written anywhere.
#[derive(Debug)]
pub struct Rewrite<'a> {
    body: &'a [u8],
    /// In order, without overlap.
    edits: Vec<Edit>,
}

impl Rewrite<'_> {
    /// Bytes of the changed body.
    pub fn size(&self) -> usize {
        let cut: usize = self.edits.iter().map(|edit| edit.end - edit.start).sum();
        let spliced: usize = self.edits.iter().map(|edit| edit.with.len()).sum();
        self.body.len() - cut + spliced
    }

    /// The changed body, piece by piece.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut at = 0;
        let tail = self.edits.last().map_or(0, |edit| edit.end);
        let edited = self.edits.iter().flat_map(move |edit| {
            let kept = Piece::Kept(at..edit.start);
            at = edit.end;
            [kept, Piece::Spliced(edit.with.as_bytes())]
        });
        edited.chain([Piece::Kept(tail..self.body.len())])
    }

    /// The bytes of one of its pieces.
    pub fn bytes<'b>(&'b self, piece: &Piece<'b>) -> &'b [u8] {
        match piece {
            Piece::Kept(span) => &self.body[span.clone()],
            Piece::Spliced(bytes) => bytes,
        }
    }

    /// The changed body.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        for piece in self.pieces() {
            bytes.extend_from_slice(self.bytes(&piece));
        }
        bytes
    }
}

impl RequestFacts {
    /// The body for the worker; none where it stays as it is.
    ///
    /// # Errors
    ///
    /// [`BodyError::AnotherBody`]: these facts were read from another body.
    pub fn rewrite<'a>(
        &self,
        body: &'a [u8],
        splice: &Splice<'_>,
    ) -> Result<Option<Rewrite<'a>>, BodyError> {
        let spans = &self.spans;
        if body.len() != spans.body {
            return Err(BodyError::AnotherBody {
                expected: spans.body,
                got: body.len(),
            });
        }
        let mut head: Vec<String> = Vec::new();
        // By field: whether the client's own, if there is one, makes room.
        let mut goes = [false; Optional::ALL.len()];
        for (name, field) in Optional::ALL {
            let value = splice.value(field);
            let mut own = spans
                .cuttable
                .iter()
                .filter(|member| member.optional == Some(field));
            let is_set = own.any(|member| !member.is_null);
            goes[field as usize] = splice.drop.contains(&field) || (value.is_some() && !is_set);
            if let Some(value) = value.filter(|_| goes[field as usize]) {
                head.push(format!("\"{name}\":{value}"));
            }
        }
        let gone = spans
            .cuttable
            .iter()
            .filter(|member| member.optional.is_none_or(|field| goes[field as usize]));
        let stay = spans.members - gone.clone().count();
        let cuts = cut::spans(gone);
        let mut edits: Vec<Edit> = cuts
            .iter()
            .chain(&spans.nested)
            .map(|&span| Edit::new(span, ""))
            .collect();
        if splice.include_usage && self.stream && spans.usage_on_request {
            ask_for_usage(spans.stream_options, &mut head, &mut edits);
        }
        if !head.is_empty() {
            let comma = if stay > 0 { "," } else { "" };
            edits.push(Edit::new((spans.open, spans.open), head.join(",") + comma));
        }
        edits.sort_by_key(|edit| (edit.start, edit.end));
        Ok((!edits.is_empty()).then_some(Rewrite { body, edits }))
    }
}

/// Sets `stream_options.include_usage`: by an edit, or by a member at the head of the body.
fn ask_for_usage(found: StreamOptions, head: &mut Vec<String>, edits: &mut Vec<Edit>) {
    const ASK: &str = "\"include_usage\":true";
    match found {
        StreamOptions::Absent => head.push(format!("\"stream_options\":{{{ASK}}}")),
        StreamOptions::Null(start, end) => {
            edits.push(Edit::new((start, end), format!("{{{ASK}}}")));
        }
        StreamOptions::Silent { open, is_empty } => {
            let comma = if is_empty { "" } else { "," };
            edits.push(Edit::new((open, open), format!("{ASK}{comma}")));
        }
        StreamOptions::Declines(start, end) => edits.push(Edit::new((start, end), "true")),
        StreamOptions::Asks => {}
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\0'..='\x1f' => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
