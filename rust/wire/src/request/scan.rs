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
        let key = cursor.decode_bytes(member.key);
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
    fn named(key: &[u8], dialect: Dialect) -> Option<Self> {
        use Dialect::{Chat, Completions, Generate, Messages, Responses};
        Some(match (key, dialect) {
            (b"model", _) => Self::Model,
            (b"stream", _) => Self::Stream,
            (b"stream_options", Chat | Completions) => Self::StreamOptions,
            (b"n", Chat | Completions) => Self::N,
            (b"max_tokens", Chat | Completions | Messages) | (b"max_output_tokens", Responses) => {
                Self::Limit
            }
            (b"max_completion_tokens", Chat) => Self::OtherLimit,
            (b"sampling_params", Generate) => Self::SamplingParams,
            (b"priority", _) => Self::Priority,
            (b"rid", _) => Self::Rid,
            (b"routed_dp_rank", _) => Self::DpRank,
            (b"data_parallel_rank", _) => Self::OtherDpRank,
            (b"messages", Chat | Messages) => Self::Messages,
            (b"system", Messages) | (b"instructions", Responses) => Self::System,
            (b"tools", Chat | Messages | Responses) => Self::Tools,
            (b"prompt", Completions) | (b"text", Generate) => Self::Prompt,
            (b"suffix", Completions) => Self::Suffix,
            (b"input", Responses) => Self::Input,
            (b"input_ids", Chat | Completions | Generate) => Self::TokenIds,
            (b"image_data", Generate) => Self::Media,
            (b"video_data", Generate) => Self::OtherMedia,
            (b"audio_data", Generate) => Self::AudioMedia,
            _ => return None,
        })
    }
}

impl Scan {
    fn member(
        &mut self,
        cursor: &mut Cursor<'_>,
        member: Member,
        key: &[u8],
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

    fn once(&mut self, bit: usize, key: &[u8], member: Member) -> Result<(), BodyError> {
        if self.seen >> bit & 1 == 1 {
            return Err(BodyError::Duplicate {
                field: String::from_utf8_lossy(key).into_owned(),
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
        let mut optional = None;
        match field {
            Field::Model => self.facts.model = text(cursor, "model")?,
            Field::Stream => self.facts.stream = flag(cursor, "stream")?,
            Field::StreamOptions => self.stream_options(cursor)?,
            Field::N => self.set_n(cursor.integer()?),
            Field::Limit | Field::OtherLimit => self.set_limit(cursor.integer()?),
            Field::SamplingParams => self.sampling_params(cursor)?,
            Field::Priority => {
                self.facts.priority = cursor.integer()?;
                optional = Some(Optional::Priority);
            }
            Field::Rid => {
                // A batch may have a list of them.
                self.facts.rid = if first == b'"' {
                    text(cursor, "rid")?
                } else {
                    ignored(cursor)?
                };
                optional = Some(Optional::Rid);
            }
            Field::DpRank | Field::OtherDpRank => {
                cursor.ignore()?;
                optional = Some(Optional::DpRank);
            }
            Field::Messages | Field::Input => self.prompt.messages(cursor)?,
            Field::System => self.prompt.system(cursor)?,
            Field::Tools => self.prompt.tools(cursor)?,
            Field::Prompt | Field::Suffix | Field::TokenIds => self.prompt.text_or_ids(cursor)?,
            Field::Media | Field::OtherMedia | Field::AudioMedia => self.prompt.media(cursor)?,
        }
        if optional.is_some() {
            self.cutter
                .mark(member, cursor.at(), optional, first == b'n');
        }
        Ok(())
    }

    fn stream_options(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        let first = cursor.peek()?;
        let start = cursor.at();
        if first == b'n' {
            cursor.ignore()?;
            self.facts.spans.stream_options = StreamOptions::Null(start, cursor.at());
            return Ok(());
        }
        if first != b'{' {
            return wrong_type("stream_options", "an object", start);
        }
        let mut object = cursor.open_object()?;
        let open = cursor.at();
        let mut is_empty = true;
        let mut asked = None;
        while let Some(member) = cursor.member(&mut object)? {
            is_empty = false;
            if *cursor.decode_bytes(member.key) != b"include_usage"[..] {
                cursor.ignore()?;
                continue;
            }
            if asked.is_some() {
                return Err(BodyError::Duplicate {
                    field: "stream_options.include_usage".to_owned(),
                    at: member.start,
                });
            }
            cursor.peek()?;
            let start = cursor.at();
            self.facts.include_usage = flag(cursor, "stream_options.include_usage")?;
            asked = Some((start, cursor.at()));
        }
        self.facts.spans.stream_options = match asked {
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
                    match &*cursor.decode_bytes(member.key) {
                        b"n" => self.set_n(cursor.integer()?),
                        b"max_new_tokens" => self.set_limit(cursor.integer()?),
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

/// A string; none where it is null.
fn text(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Option<String>, BodyError> {
    match cursor.peek()? {
        b'"' => {
            let string = cursor.string()?;
            Ok(Some(cursor.decode(string).into_owned()))
        }
        b'n' => ignored(cursor),
        _ => wrong_type(field, "a string", cursor.at()),
    }
}

/// True, false, or null for false.
fn flag(cursor: &mut Cursor<'_>, field: &'static str) -> Result<bool, BodyError> {
    match cursor.peek()? {
        b't' | b'f' | b'n' => Ok(cursor.boolean()? == Some(true)),
        _ => wrong_type(field, "true or false", cursor.at()),
    }
}

fn ignored<T>(cursor: &mut Cursor<'_>) -> Result<Option<T>, BodyError> {
    cursor.ignore()?;
    Ok(None)
}

fn wrong_type<T>(field: &'static str, expected: &'static str, at: usize) -> Result<T, BodyError> {
    Err(BodyError::WrongType {
        field,
        expected,
        at,
    })
}
