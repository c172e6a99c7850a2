//! How much there is to read for the model: text, media, token ids.
//!
//! Every string counts as text that no rule of [`Part`] takes for something else. A string too
//! many costs a token or two; the estimate of tokens per byte is learned from usage and absorbs it.
//! What must not be missed are media, which would otherwise count as megabytes of text.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::BodyError;
use crate::json::{Cursor, Text};

/// Counts while the prompt is read.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    pub(super) text: Text,
    pub(super) media_items: u64,
    pub(super) media_bytes: u64,
    pub(super) token_ids: u64,
    pub(super) messages: u64,
    /// There is something to generate from.
    pub(super) is_given: bool,
    system: Option<u64>,
    tools: Option<u64>,
}

/// What a member of a message or content part holds.
enum Part {
    /// Text, or a list of parts.
    Content,
    /// Nothing that the model reads: kinds, ids, signatures.
    Label,
    /// An image, audio clip, video or file.
    Media,
    /// Anthropic's `source`: media, or the text of a document.
    Source,
    /// JSON that the model reads as such: arguments of a tool call.
    Arguments,
}

impl Part {
    fn of(key: &[u8]) -> Self {
        match key {
            b"role" | b"type" | b"id" | b"tool_call_id" | b"tool_use_id" | b"call_id"
            | b"status" | b"signature" | b"encrypted_content" | b"cache_control" | b"detail" => {
                Self::Label
            }
            b"image_url" | b"video_url" | b"audio_url" | b"input_audio" | b"image" | b"video"
            | b"audio" | b"file" | b"file_data" | b"file_url" => Self::Media,
            b"source" => Self::Source,
            b"arguments" | b"input" => Self::Arguments,
            _ => Self::Content,
        }
    }
}

impl Prompt {
    /// Identity of the leading system prompt and the tools.
    pub(super) fn prefix(&self) -> Option<u64> {
        match (self.system, self.tools) {
            (system, None) => system,
            (None, Some(tools)) => Some(xxh3_64_with_seed(b"tools", tools)),
            (Some(system), Some(tools)) => Some(xxh3_64_with_seed(&system.to_le_bytes(), tools)),
        }
    }

    /// `messages`, or `input` of the responses API: a list, or a single string.
    pub(super) fn messages(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        if cursor.peek()? != b'[' {
            self.content(cursor)?;
            self.is_given |= self.text.bytes > 0;
            return Ok(());
        }
        let mut array = cursor.open_array()?;
        let mut leading = true;
        while cursor.element(&mut array)? {
            self.messages += 1;
            self.is_given = true;
            let first = cursor.peek()?;
            let start = cursor.at();
            if first != b'{' {
                leading = false;
                self.content(cursor)?;
                continue;
            }
            leading &= self.message(cursor)?;
            if leading {
                self.extend_system(cursor.span(start, cursor.at()));
            }
        }
        Ok(())
    }

    /// True: its role is one of those that set the model up.
    fn message(&mut self, cursor: &mut Cursor<'_>) -> Result<bool, BodyError> {
        let mut is_system = false;
        let mut object = cursor.open_object()?;
        while let Some(member) = cursor.member(&mut object)? {
            let key = cursor.decode_bytes(member.key);
            if *key == b"role"[..] && cursor.peek()? == b'"' {
                let role = cursor.string()?;
                is_system = matches!(&*cursor.decode(role), "system" | "developer");
            } else {
                self.part(cursor, &key)?;
            }
        }
        Ok(is_system)
    }

    fn extend_system(&mut self, bytes: &[u8]) {
        self.system = Some(xxh3_64_with_seed(bytes, self.system.unwrap_or_default()));
    }

    /// `system`, or `instructions` of the responses API: it leads whatever the messages are.
    pub(super) fn system(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        let first = cursor.peek()?;
        let start = cursor.at();
        self.content(cursor)?;
        if first != b'n' {
            self.extend_system(cursor.span(start, cursor.at()));
        }
        Ok(())
    }

    /// Descriptions of tools, which chat templates render as JSON.
    pub(super) fn tools(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        if cursor.peek()? != b'[' {
            return cursor.ignore();
        }
        let start = cursor.at();
        let mut text = Text::default();
        cursor.source_text(&mut text)?;
        let source = cursor.span(start, cursor.at());
        if text.longest > 0 {
            self.text.join(text);
            self.tools = Some(xxh3_64(source));
        }
        Ok(())
    }

    /// A prompt: text, token ids, or a list of either.
    pub(super) fn text_or_ids(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        match cursor.peek()? {
            b'"' => {
                let string = cursor.string()?;
                self.text.add(cursor, string);
                self.is_given |= string.end > string.start;
            }
            b'[' => {
                let mut array = cursor.open_array()?;
                while cursor.element(&mut array)? {
                    self.is_given = true;
                    self.text_or_ids_in_list(cursor)?;
                }
            }
            _ => cursor.ignore()?,
        }
        Ok(())
    }

    fn text_or_ids_in_list(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        if !cursor.peek()?.is_ascii_digit() {
            return self.text_or_ids(cursor);
        }
        let plain = cursor.plain_numbers();
        if plain == 0 {
            cursor.number()?;
        }
        self.token_ids += plain.max(1) as u64;
        Ok(())
    }

    /// Text, a part, or a list of them.
    fn content(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        match cursor.peek()? {
            b'"' => {
                let string = cursor.string()?;
                self.text.add(cursor, string);
            }
            b'[' => {
                let mut array = cursor.open_array()?;
                while cursor.element(&mut array)? {
                    self.content(cursor)?;
                }
            }
            b'{' => {
                let mut object = cursor.open_object()?;
                while let Some(member) = cursor.member(&mut object)? {
                    let key = cursor.decode_bytes(member.key);
                    self.part(cursor, &key)?;
                }
            }
            _ => cursor.ignore()?,
        }
        Ok(())
    }

    fn part(&mut self, cursor: &mut Cursor<'_>, key: &[u8]) -> Result<(), BodyError> {
        match Part::of(key) {
            Part::Label => cursor.ignore(),
            Part::Media => self.media(cursor),
            Part::Source => self.source(cursor),
            Part::Arguments if matches!(cursor.peek()?, b'{' | b'[') => {
                cursor.source_text(&mut self.text)
            }
            Part::Content | Part::Arguments => self.content(cursor),
        }
    }

    /// One item of media, or a list of them. Its size is that of the longest string in it.
    pub(super) fn media(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        match cursor.peek()? {
            b'[' => {
                let mut array = cursor.open_array()?;
                while cursor.element(&mut array)? {
                    self.media(cursor)?;
                }
            }
            b'n' => cursor.ignore()?,
            _ => {
                let mut strings = Text::of_values();
                cursor.skip(&mut strings)?;
                self.media_items += 1;
                self.media_bytes += strings.longest;
            }
        }
        Ok(())
    }

    fn source(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BodyError> {
        if cursor.peek()? != b'{' {
            return self.content(cursor);
        }
        let mut is_text = false;
        let mut strings = Text::of_values();
        let mut object = cursor.open_object()?;
        while let Some(member) = cursor.member(&mut object)? {
            let key = cursor.decode_bytes(member.key);
            if *key == b"type"[..] && cursor.peek()? == b'"' {
                let kind = cursor.string()?;
                is_text = matches!(&*cursor.decode(kind), "text" | "content");
            } else if *key == b"media_type"[..] {
                cursor.ignore()?;
            } else {
                cursor.skip(&mut strings)?;
            }
        }
        if is_text {
            self.text.join(strings);
        } else {
            self.media_items += 1;
            self.media_bytes += strings.longest;
        }
        Ok(())
    }
}
