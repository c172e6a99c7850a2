//! The body that the worker gets: the client's own bytes, but for the spans cut and spliced.

use std::borrow::Cow;
use std::fmt::Write;

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
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        let tail = self.edits.last().map_or(0, |edit| edit.end);
        let edited = self.edits.iter().flat_map(move |edit| {
            let kept = &self.body[at..edit.start];
            at = edit.end;
            [kept, edit.with.as_bytes()]
        });
        edited.chain([&self.body[tail..]])
    }

    /// The changed body.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        self.pieces()
            .for_each(|piece| bytes.extend_from_slice(piece));
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
        let mut edits: Vec<Edit> = Vec::new();
        let spliced = |field| match field {
            Optional::SessionId => splice.session_id.is_some(),
            Optional::Rid => splice.rid.is_some(),
            Optional::Priority => splice.priority.is_some(),
            Optional::DpRank => splice.dp_rank.is_some(),
        };
        let goes = |member: &&cut::Cuttable| match member.optional {
            None => true,
            Some(field) => splice.drop.contains(&field) || (member.is_null && spliced(field)),
        };
        let gone = spans.cuttable.iter().filter(goes).count();
        let stays = |optional| {
            spans
                .cuttable
                .iter()
                .any(|member| member.optional == Some(optional) && !goes(&member))
        };
        let cuts = cut::spans(spans.cuttable.iter().filter(goes));
        edits.extend(cuts.iter().chain(&spans.nested).map(|&(start, end)| Edit {
            start,
            end,
            with: "".into(),
        }));

        let mut head = String::new();
        let mut member = |name: &str, value: &str| {
            head.push_str(if head.is_empty() { "\"" } else { ",\"" });
            head.push_str(name);
            head.push_str("\":");
            head.push_str(value);
        };
        if let Some(session_id) = splice.session_id
            && !stays(Optional::SessionId)
        {
            member("session_id", &quoted(session_id));
        }
        if let Some(rid) = splice.rid
            && !stays(Optional::Rid)
        {
            member("rid", &quoted(rid));
        }
        if let Some(priority) = splice.priority
            && !stays(Optional::Priority)
        {
            member("priority", &priority.to_string());
        }
        if let Some(rank) = splice.dp_rank
            && !stays(Optional::DpRank)
        {
            member("routed_dp_rank", &rank.to_string());
        }
        if splice.include_usage && self.stream && spans.usage_on_request {
            const ASK: &str = "\"include_usage\":true";
            match spans.stream_options {
                StreamOptions::Absent => member("stream_options", &format!("{{{ASK}}}")),
                StreamOptions::Null(start, end) => {
                    edits.push(Edit {
                        start,
                        end,
                        with: format!("{{{ASK}}}").into(),
                    });
                }
                StreamOptions::Silent { open, is_empty } => {
                    let comma = if is_empty { "" } else { "," };
                    edits.push(Edit {
                        start: open,
                        end: open,
                        with: format!("{ASK}{comma}").into(),
                    });
                }
                StreamOptions::Declines(start, end) => edits.push(Edit {
                    start,
                    end,
                    with: "true".into(),
                }),
                StreamOptions::Asks => {}
            }
        }
        if !head.is_empty() {
            if gone < spans.members {
                head.push(',');
            }
            edits.push(Edit {
                start: spans.open,
                end: spans.open,
                with: head.into(),
            });
        }
        edits.sort_by_key(|edit| (edit.start, edit.end));
        Ok((!edits.is_empty()).then_some(Rewrite { body, edits }))
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
