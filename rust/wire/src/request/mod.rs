//! What a request body says, and the body that the worker gets.

mod container;
mod cut;
mod fields;
mod prompt;
mod rewrite;
mod scan;

pub use fields::Optional;
pub use rewrite::{Piece, Rewrite, Splice};
pub use scan::scan;

use cut::Cuttable;
use rewrite::StreamOptions;

/// What one pass over a request body found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts")]
pub struct RequestFacts {
    /// The model asked for.
    pub model: Option<String>,
    /// The answer is to be streamed.
    pub stream: bool,
    /// The client asked for the usage chunk itself.
    pub include_usage: bool,
    /// Every identity field found: its dotted path, and its value. In the order of the body.
    pub identity: Vec<(&'static str, String)>,
    /// The client says that this request is its program's last.
    pub is_final: bool,
    /// There is nothing to generate from: no messages, prompt or input.
    pub is_empty: bool,
    /// Containers that the client declared as its program's.
    pub docker_ids: Vec<String>,
    /// The priority that the client chose.
    pub priority: Option<i64>,
    /// The request id that the client chose, if it is a single one.
    pub rid: Option<String>,
    /// Completions asked for, per prompt.
    pub n: u64,
    /// The limit on generated tokens.
    pub max_new_tokens: Option<u64>,
    /// UTF-8 bytes of prompt text.
    pub text_bytes: u64,
    /// Characters of prompt text.
    pub text_chars: u64,
    /// Characters of prompt text that tokenize at about one token each.
    pub wide_chars: u64,
    /// Images, audio clips, videos and files.
    pub media_items: u64,
    /// Their bytes as they stand in the body: base64, data URL or URL.
    pub media_bytes: u64,
    /// Prompt tokens given as ids.
    pub token_ids: u64,
    /// Messages, or input items.
    pub messages: u64,
    /// Hash of the leading system prompt and the tools.
    pub prefix: Option<u64>,
    spans: Spans,
}

/// Where the edits go that [`RequestFacts::rewrite`] may have to make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Spans {
    /// Length of the body.
    body: usize,
    /// After the opening brace.
    open: usize,
    /// Members of the body.
    members: usize,
    /// Members of the body that may go.
    cuttable: Vec<Cuttable>,
    /// Spans inside other members that go.
    nested: Vec<(usize, usize)>,
    stream_options: StreamOptions,
    /// The dialect has `stream_options`.
    usage_on_request: bool,
}
