//! What one document of an answer says: an SSE event's data, or a whole JSON body.

use std::ops::Range;

use crate::json::unescape;

use super::facts::MOST_TOOLS;
use super::node::Node;

/// Numbers of tokens that an answer may report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Prompt,
    Completion,
    Cached,
    CacheRead,
    CacheCreation,
    Device,
    Host,
    Storage,
}

/// A value for each [`Count`], where one was reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts([Option<u64>; 8]);

impl Counts {
    pub(super) const fn get(&self, count: Count) -> Option<u64> {
        self.0[count as usize]
    }

    pub(super) const fn set(&mut self, count: Count, value: u64) {
        self.0[count as usize] = Some(value);
    }

    /// Takes over what the newer report says.
    pub(super) fn update(&mut self, newer: &Self) {
        for (old, new) in self.0.iter_mut().zip(newer.0) {
            *old = new.or(*old);
        }
    }

    /// Adds the report on another sequence.
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            if let Some(value) = value {
                *sum = Some(sum.unwrap_or_default().saturating_add(value));
            }
        }
    }
}

/// What `type` says.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing that matters.
    #[default]
    Other,
    /// An error.
    Error,
    /// The stream has come to its end.
    End,
}

/// Facts of one document.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct Event {
    /// The id is known, so it need not be kept again.
    knows_id: bool,
    pub(super) id: Option<String>,
    pub(super) kind: Kind,
    /// `object` is "error", or `error` is there and not null.
    pub(super) has_error: bool,
    pub(super) message: Option<String>,
    pub(super) code: Option<i64>,
    /// Elements of `choices`; none: there is no such array.
    pub(super) choices: Option<u32>,
    pub(super) index: Option<u64>,
    /// Some text was generated.
    pub(super) has_text: bool,
    /// Strings of generated text, empty ones too.
    texts: u32,
    /// Where the last of them stands in the piece that was read, if it stands there whole.
    text: Option<Range<usize>>,
    pub(super) finish_reason: Option<String>,
    pub(super) status: Option<String>,
    pub(super) tools: Vec<String>,
    /// `usage` or `meta_info` is an object.
    pub(super) has_usage: bool,
    /// `sglext` is an object.
    pub(super) has_extension: bool,
    pub(super) counts: Counts,
    /// Sum of the reports before the present one, in a batch.
    earlier: Counts,
    pub(super) weight_version: Option<String>,
}

impl Event {
    /// Nothing read yet.
    pub(super) fn new(knows_id: bool) -> Self {
        Self {
            knows_id,
            ..Self::default()
        }
    }

    /// Whether the document reports an error.
    pub(super) fn is_error(&self) -> bool {
        self.has_error || self.kind == Kind::Error
    }

    /// How many bytes of a string at this place to keep.
    pub(super) fn keep(&self, node: Node) -> usize {
        if node == Node::Id && self.knows_id {
            0
        } else {
            node.keep()
        }
    }

    /// An object or array begins.
    pub(super) fn enter(&mut self, node: Node) {
        match node {
            Node::Choices => self.choices = Some(0),
            Node::Choice => self.choices = self.choices.map(|choices| choices.saturating_add(1)),
            Node::Usage => self.has_usage = true,
            Node::MetaInfo => {
                self.has_usage = true;
                self.earlier = self.counts;
            }
            Node::Extension => self.has_extension = true,
            Node::Error => self.has_error = true,
            _ => {}
        }
    }

    /// A string ends. `kept`: its beginning, raw. `length`: of the whole raw string, in bytes.
    pub(super) fn string(&mut self, node: Node, kept: &[u8], length: usize) {
        match node {
            Node::Text => self.has_text |= length > 0,
            Node::ToolName if length > 0 && self.tools.len() < MOST_TOOLS => {
                self.tools.push(unescape(kept));
            }
            Node::FinishReason => self.finish_reason = Some(unescape(kept)),
            Node::Status => self.status = Some(unescape(kept)),
            Node::Id if !self.knows_id => {
                self.knows_id = true;
                self.id = Some(unescape(kept));
            }
            Node::WeightVersion => self.weight_version = Some(unescape(kept)),
            Node::Object => self.has_error |= kept == b"error",
            Node::Type => {
                self.kind = match kept {
                    b"error" => Kind::Error,
                    b"message_stop"
                    | b"response.completed"
                    | b"response.incomplete"
                    | b"response.failed"
                    | b"response.cancelled" => Kind::End,
                    _ => Kind::Other,
                }
            }
            Node::Error => {
                self.has_error = true;
                self.message = Some(unescape(kept));
            }
            Node::ErrorMessage => self.message = Some(unescape(kept)),
            Node::ErrorCode => self.code = number(kept),
            _ => {}
        }
    }

    /// Where the string of generated text stands that has just ended.
    pub(super) fn place_text(&mut self, place: Option<Range<usize>>) {
        self.texts += 1;
        self.text = place;
    }

    /// Where the only string of generated text stands, in a document that says nothing else.
    pub(super) fn only_text(&self) -> Option<Range<usize>> {
        let says_more = self.is_error()
            || self.kind != Kind::Other
            || self.finish_reason.is_some()
            || self.status.is_some()
            || self.weight_version.is_some()
            || self.has_usage
            || self.has_extension
            || !self.tools.is_empty();
        self.text.clone().filter(|_| self.texts == 1 && !says_more)
    }

    /// A number, `true`, `false` or `null` ends.
    pub(super) fn scalar(&mut self, node: Node, text: &[u8]) {
        let count = match node {
            Node::PromptTokens => Count::Prompt,
            Node::CompletionTokens => Count::Completion,
            Node::CachedTokens => Count::Cached,
            Node::CacheReadTokens => Count::CacheRead,
            Node::CacheCreationTokens => Count::CacheCreation,
            Node::DeviceTokens => Count::Device,
            Node::HostTokens => Count::Host,
            Node::StorageTokens => Count::Storage,
            Node::Index => {
                self.index = number(text);
                return;
            }
            Node::ErrorCode => {
                self.code = number(text);
                return;
            }
            _ => return,
        };
        if let Some(value) = number::<u64>(text) {
            self.counts.set(
                count,
                self.earlier
                    .get(count)
                    .unwrap_or_default()
                    .saturating_add(value),
            );
        }
    }
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
