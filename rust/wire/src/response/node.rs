//! The places in an answer that matter, as a tree of keys.
//!
//! One tree serves all dialects: they differ in the root they begin at. Everything that is not
//! named here is [`Node::Skip`] and costs only the search for its end.

use crate::Dialect;

/// A place in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// Nothing below matters.
    Skip,

    ChatRoot,
    ResponsesRoot,
    MessagesRoot,
    GenerateRoot,

    /// `choices`, and one of them.
    Choices,
    Choice,
    Index,
    /// What a choice says: `message`, or `delta` of it.
    Delta,
    ToolCalls,
    ToolCall,
    Function,
    /// Generated text: it only matters whether there is some.
    Text,
    FinishReason,
    /// The name of a tool that is called.
    ToolName,

    Usage,
    PromptTokens,
    CompletionTokens,
    UsageDetails,
    CachedTokens,
    CacheReadTokens,
    CacheCreationTokens,

    /// `sglext`, or a choice's `meta_info`: where SGLang says which tier the cached tokens came from.
    Extension,
    Tiers,
    DeviceTokens,
    HostTokens,
    StorageTokens,

    /// `meta_info` of `/generate`.
    MetaInfo,
    Metadata,
    WeightVersion,

    /// `response` of the responses API.
    Response,
    Output,
    Item,
    Status,
    Incomplete,

    /// `message` of `message_start`.
    Message,
    Blocks,
    Block,
    BlockDelta,

    Id,
    /// `type` at the top.
    Type,
    /// `object` at the top.
    Object,
    Error,
    ErrorMessage,
    ErrorCode,
}

impl Node {
    /// Where an answer in this dialect begins.
    pub(super) const fn root(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Chat | Dialect::Completions => Self::ChatRoot,
            Dialect::Responses => Self::ResponsesRoot,
            Dialect::Messages => Self::MessagesRoot,
            Dialect::Generate => Self::GenerateRoot,
        }
    }

    /// The place under this key.
    pub(super) fn child(self, key: &[u8]) -> Self {
        match self {
            Self::ChatRoot => match key {
                b"choices" => Self::Choices,
                b"sglext" => Self::Extension,
                b"metadata" => Self::Metadata,
                _ => Self::envelope(key),
            },
            Self::Choice => match key {
                b"index" => Self::Index,
                b"delta" | b"message" => Self::Delta,
                b"text" => Self::Text,
                b"finish_reason" => Self::FinishReason,
                b"meta_info" => Self::Extension,
                _ => Self::Skip,
            },
            Self::Delta => match key {
                b"content" | b"reasoning_content" | b"reasoning" => Self::Text,
                b"tool_calls" => Self::ToolCalls,
                b"function_call" => Self::Function,
                _ => Self::Skip,
            },
            Self::ToolCall if key == b"function" => Self::Function,
            Self::Function => match key {
                b"name" => Self::ToolName,
                b"arguments" => Self::Text,
                _ => Self::Skip,
            },
            Self::GenerateRoot => match key {
                b"index" => Self::Index,
                b"text" => Self::Text,
                b"meta_info" => Self::MetaInfo,
                _ => Self::envelope(key),
            },
            Self::ResponsesRoot => match key {
                b"response" => Self::Response,
                b"item" => Self::Item,
                b"delta" => Self::Text,
                _ => Self::response(key),
            },
            Self::Response => Self::response(key),
            Self::MessagesRoot => match key {
                b"message" => Self::Message,
                b"content_block" => Self::Block,
                b"delta" => Self::BlockDelta,
                b"content" => Self::Blocks,
                b"stop_reason" => Self::FinishReason,
                _ => Self::envelope(key),
            },
            Self::Message => match key {
                b"content" => Self::Blocks,
                b"stop_reason" => Self::FinishReason,
                b"id" | b"usage" => Self::envelope(key),
                _ => Self::Skip,
            },
            Self::BlockDelta => match key {
                b"text" | b"thinking" | b"partial_json" => Self::Text,
                b"stop_reason" => Self::FinishReason,
                _ => Self::Skip,
            },
            Self::Item | Self::Block if key == b"name" => Self::ToolName,
            Self::Usage | Self::UsageDetails | Self::MetaInfo | Self::Extension | Self::Tiers => {
                self.report(key)
            }
            Self::Metadata if key == b"weight_version" => Self::WeightVersion,
            Self::FinishReason if key == b"type" => Self::FinishReason,
            Self::Incomplete if key == b"reason" => Self::FinishReason,
            Self::Error => match key {
                b"message" => Self::ErrorMessage,
                b"code" => Self::ErrorCode,
                _ => Self::Skip,
            },
            _ => Self::Skip,
        }
    }

    /// The keys that stand at the top in most dialects.
    fn envelope(key: &[u8]) -> Self {
        match key {
            b"id" => Self::Id,
            b"usage" => Self::Usage,
            b"type" => Self::Type,
            b"object" => Self::Object,
            b"error" => Self::Error,
            b"message" => Self::ErrorMessage,
            b"code" => Self::ErrorCode,
            _ => Self::Skip,
        }
    }

    /// The keys of a response of the responses API, which stands at the top or in an event.
    fn response(key: &[u8]) -> Self {
        match key {
            b"output" => Self::Output,
            b"status" => Self::Status,
            b"incomplete_details" => Self::Incomplete,
            _ => Self::envelope(key),
        }
    }

    /// The keys that report numbers of tokens.
    fn report(self, key: &[u8]) -> Self {
        match (self, key) {
            (Self::Usage | Self::MetaInfo, b"prompt_tokens" | b"input_tokens") => {
                Self::PromptTokens
            }
            (Self::Usage | Self::MetaInfo, b"completion_tokens" | b"output_tokens") => {
                Self::CompletionTokens
            }
            (Self::Usage, b"prompt_tokens_details" | b"input_tokens_details") => Self::UsageDetails,
            (Self::Usage, b"cache_read_input_tokens") => Self::CacheReadTokens,
            (Self::Usage, b"cache_creation_input_tokens") => Self::CacheCreationTokens,
            (Self::UsageDetails | Self::MetaInfo, b"cached_tokens") => Self::CachedTokens,
            (Self::Extension | Self::MetaInfo, b"cached_tokens_details") => Self::Tiers,
            (Self::Tiers, b"device") => Self::DeviceTokens,
            (Self::Tiers, b"host") => Self::HostTokens,
            (Self::Tiers, b"storage") => Self::StorageTokens,
            (Self::MetaInfo, b"id") => Self::Id,
            (Self::MetaInfo, b"finish_reason") => Self::FinishReason,
            (Self::MetaInfo, b"weight_version") => Self::WeightVersion,
            _ => Self::Skip,
        }
    }

    /// The place of each element, where this one is an array.
    pub(super) const fn element(self) -> Self {
        match self {
            Self::Choices => Self::Choice,
            Self::ToolCalls => Self::ToolCall,
            Self::Output => Self::Item,
            Self::Blocks => Self::Block,
            Self::GenerateRoot => Self::GenerateRoot,
            _ => Self::Skip,
        }
    }

    /// How many bytes of a string here are worth keeping.
    pub(super) const fn keep(self) -> usize {
        match self {
            Self::ErrorMessage | Self::Error => 4096,
            Self::Id
            | Self::ToolName
            | Self::FinishReason
            | Self::Status
            | Self::WeightVersion
            | Self::Type
            | Self::Object
            | Self::ErrorCode => 256,
            _ => 0,
        }
    }
}
