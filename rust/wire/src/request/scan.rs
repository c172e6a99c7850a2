//! The one pass over a request body.

use crate::json::{Cursor, Member};
use crate::{BodyError, Dialect};

use super::RequestFacts;
use super::cut::Cutter;
use super::fields::{self, Fate, Optional};
use super::prompt::Prompt;
use super::rewrite::StreamOptions;

/// Finds what a scheduler needs to know about a request.
///
/// # Errors
///
/// The body is not one JSON object, a field that the router needs has the wrong type, or a field
/// that it reads is given twice. What only the engine needs is for the engine to judge.
pub fn scan(body: &[u8], dialect: Dialect) -> Result<RequestFacts, BodyError> {
    let mut cursor = Cursor::new(body)?;
    if cursor.peek()? != b'{' {
        Cursor::document(body)?;
        return Err(BodyError::NotAnObject);
    }
    let mut object = cursor.open_object()?;
    let mut scan = Scan {
        facts: RequestFacts {
            n: 1,
            ..RequestFacts::default()
        },
        prompt: Prompt::default(),
        cutter: Cutter::default(),
        seen: 0,
        dialect,
    };
    scan.facts.spans.body = body.len();
    scan.facts.spans.open = cursor.at();
    scan.facts.spans.usage_on_request = dialect.usage_on_request();
    while let Some(member) = cursor.member(&mut object)? {
        scan.cutter.begin(member);
        let key = cursor.decode(member.key);
        scan.member(&mut cursor, member, &key)?;
    }
    cursor.end()?;
    Ok(scan.finish())
}

struct Scan {
    facts: RequestFacts,
    prompt: Prompt,
    cutter: Cutter,
    /// A bit for each field that was seen.
    seen: u128,
    dialect: Dialect,
}

/// Top-level fields that the router reads itself. The others stand in [`fields::RULES`].
#[derive(Clone, Copy)]
enum Field {
    Model,
    Stream,
    StreamOptions,
    N,
    Limit,
    OtherLimit,
    SamplingParams,
    Priority,
    Rid,
    DpRank,
    OtherDpRank,
    Messages,
    System,
    Tools,
    Prompt,
    Suffix,
    Input,
    TokenIds,
    Media,
    OtherMedia,
    AudioMedia,
}

/// Bits of `seen` that belong to [`Field`]; the rules' bits follow.
const FIELD_BITS: usize = 24;
const _: () =
    assert!((Field::AudioMedia as usize) < FIELD_BITS && FIELD_BITS + fields::RULES.len() <= 128);

impl Field {
    fn named(key: &str, dialect: Dialect) -> Option<Self> {
        use Dialect::{Chat, Completions, Generate, Messages, Responses};
        Some(match (key, dialect) {
            ("model", _) => Self::Model,
            ("stream", _) => Self::Stream,
            ("stream_options", Chat | Completions) => Self::StreamOptions,
            ("n", Chat | Completions) => Self::N,
            ("max_tokens", Chat | Completions | Messages) | ("max_output_tokens", Responses) => {
                Self::Limit
            }
            ("max_completion_tokens", Chat) => Self::OtherLimit,
            ("sampling_params", Generate) => Self::SamplingParams,
            ("priority", _) => Self::Priority,
            ("rid", _) => Self::Rid,
            ("routed_dp_rank", _) => Self::DpRank,
            ("data_parallel_rank", _) => Self::OtherDpRank,
            ("messages", Chat | Messages) => Self::Messages,
            ("system", Messages) | ("instructions", Responses) => Self::System,
            ("tools", Chat | Messages | Responses) => Self::Tools,
            ("prompt", Completions) | ("text", Generate) => Self::Prompt,
            ("suffix", Completions) => Self::Suffix,
            ("input", Responses) => Self::Input,
            ("input_ids", Chat | Completions | Generate) => Self::TokenIds,
            ("image_data", Generate) => Self::Media,
            ("video_data", Generate) => Self::OtherMedia,
            ("audio_data", Generate) => Self::AudioMedia,
            _ => return None,
        })
    }
}

impl Scan {
    fn member(
        &mut self,
        cursor: &mut Cursor<'_>,
        member: Member,
        key: &str,
    ) -> Result<(), BodyError> {
        if let Some(field) = Field::named(key, self.dialect) {
            self.once(field as usize, key, member)?;
            self.field(cursor, member, field)
        } else if let Some((index, rule)) = fields::find("", key) {
            self.once(FIELD_BITS + index, key, member)?;
            let is_null = cursor.peek()? == b'n';
            let all_gone = self.facts.read(cursor, rule)?;
            let optional = if let Fate::Ask(optional) = rule.fate {
                Some(optional)
            } else {
                None
            };
            if all_gone || optional.is_some() {
                self.cutter.mark(member, cursor.at(), optional, is_null);
            }
            Ok(())
        } else {
            cursor.ignore()
        }
    }

    fn once(&mut self, bit: usize, key: &str, member: Member) -> Result<(), BodyError> {
        if self.seen >> bit & 1 == 1 {
            return Err(BodyError::Duplicate {
                field: key.to_owned(),
                at: member.start,
            });
        }
        self.seen |= 1 << bit;
        Ok(())
    }

    fn field(
        &mut self,
        cursor: &mut Cursor<'_>,
        member: Member,
        field: Field,
    ) -> Result<(), BodyError> {
        let first = cursor.peek()?;
        let at = cursor.at();
        match (field, first) {
            (
                Field::Model | Field::Stream | Field::StreamOptions | Field::Rid | Field::Priority,
                b'n',
            ) => {
                cursor.ignore()?;
                match field {
                    Field::StreamOptions => {
                        self.facts.spans.stream_options = StreamOptions::Null(at, cursor.at());
                    }
                    Field::Rid => self
                        .cutter
                        .mark(member, cursor.at(), Some(Optional::Rid), true),
                    Field::Priority => {
                        self.cutter
                            .mark(member, cursor.at(), Some(Optional::Priority), true);
                    }
                    _ => {}
                }
            }
            (Field::Model, b'"') => {
                let string = cursor.string()?;
                self.facts.model = Some(cursor.decode(string).into_owned());
            }
            (Field::Model, _) => return wrong_type("model", "a string", at),
            (Field::Stream, b't' | b'f') => self.facts.stream = cursor.boolean()? == Some(true),
            (Field::Stream, _) => return wrong_type("stream", "true or false", at),
            (Field::StreamOptions, b'{') => self.stream_options(cursor)?,
            (Field::StreamOptions, _) => return wrong_type("stream_options", "an object", at),
            (Field::N, _) => self.set_n(cursor.integer()?),
            (Field::Limit | Field::OtherLimit, _) => self.set_limit(cursor.integer()?),
            (Field::SamplingParams, _) => self.sampling_params(cursor)?,
            (Field::Priority, _) => {
                self.facts.priority = cursor.integer()?;
                self.cutter
                    .mark(member, cursor.at(), Some(Optional::Priority), false);
            }
            (Field::Rid, b'"') => {
                let string = cursor.string()?;
                self.facts.rid = Some(cursor.decode(string).into_owned());
                self.cutter
                    .mark(member, cursor.at(), Some(Optional::Rid), false);
            }
            (Field::Rid, _) => {
                cursor.ignore()?;
                self.cutter
                    .mark(member, cursor.at(), Some(Optional::Rid), false);
            }
            (Field::DpRank | Field::OtherDpRank, _) => {
                self.facts.spans.has_dp_rank |= first != b'n';
                cursor.ignore()?;
            }
            (Field::Messages | Field::Input, _) => self.prompt.messages(cursor)?,
            (Field::System, _) => self.prompt.system(cursor)?,
            (Field::Tools, _) => self.prompt.tools(cursor)?,
            (Field::Prompt | Field::Suffix | Field::TokenIds, _) => {
                self.prompt.text_or_ids(cursor)?;
            }
            (Field::Media | Field::OtherMedia | Field::AudioMedia, _) => {
                self.prompt.media(cursor)?;
            }
        }
        Ok(())
    }

    fn stream_options(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        let mut object = cursor.open_object()?;
        let open = cursor.at();
        let mut is_empty = true;
        let mut found = None;
        while let Some(member) = cursor.member(&mut object)? {
            is_empty = false;
            if cursor.decode(member.key) != "include_usage" {
                cursor.ignore()?;
                continue;
            }
            let first = cursor.peek()?;
            let start = cursor.at();
            if !matches!(first, b't' | b'f' | b'n') {
                return wrong_type("stream_options.include_usage", "true or false", start);
            }
            if found.is_some() {
                return Err(BodyError::Duplicate {
                    field: "stream_options.include_usage".into(),
                    at: member.start,
                });
            }
            self.facts.include_usage = cursor.boolean()? == Some(true);
            found = Some((start, cursor.at()));
        }
        self.facts.spans.stream_options = match found {
            Some(_) if self.facts.include_usage => StreamOptions::Asks,
            Some((start, end)) => StreamOptions::Declines(start, end),
            None => StreamOptions::Silent { open, is_empty },
        };
        Ok(())
    }

    /// `/generate` takes one set of parameters, or one for each prompt of a batch.
    fn sampling_params(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        match cursor.peek()? {
            b'{' => {
                let mut object = cursor.open_object()?;
                while let Some(member) = cursor.member(&mut object)? {
                    match &*cursor.decode(member.key) {
                        "n" => self.set_n(cursor.integer()?),
                        "max_new_tokens" => self.set_limit(cursor.integer()?),
                        _ => cursor.ignore()?,
                    }
                }
            }
            b'[' => {
                let mut array = cursor.open_array()?;
                while cursor.element(&mut array)? {
                    if cursor.peek()? == b'{' {
                        self.sampling_params(cursor)?;
                    } else {
                        cursor.ignore()?;
                    }
                }
            }
            _ => cursor.ignore()?,
        }
        Ok(())
    }

    fn set_n(&mut self, n: Option<i64>) {
        let n = n.and_then(|n| u64::try_from(n).ok()).unwrap_or(1).max(1);
        self.facts.n = self.facts.n.max(n);
    }

    /// Of several limits the largest counts: nothing longer will be generated.
    fn set_limit(&mut self, limit: Option<i64>) {
        let limit = limit.and_then(|limit| u64::try_from(limit).ok());
        self.facts.max_new_tokens = self.facts.max_new_tokens.max(limit);
    }

    fn finish(self) -> RequestFacts {
        let mut facts = self.facts;
        let prompt = self.prompt;
        facts.is_empty = !prompt.is_given;
        facts.text_bytes = prompt.text.bytes;
        facts.text_chars = prompt.text.chars;
        facts.wide_chars = prompt.text.wide;
        facts.media_items = prompt.media_items;
        facts.media_bytes = prompt.media_bytes;
        facts.token_ids = prompt.token_ids;
        facts.messages = prompt.messages;
        facts.prefix = prompt.prefix();
        facts.spans.members = self.cutter.members;
        facts.spans.cuttable = self.cutter.cuttable;
        facts
    }
}

fn wrong_type(field: &'static str, expected: &'static str, at: usize) -> Result<(), BodyError> {
    Err(BodyError::WrongType {
        field,
        expected,
        at,
    })
}
