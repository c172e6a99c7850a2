//! Which API a route speaks.

/// The API of a route: it decides where prompts, usage and tool calls stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI `/v1/chat/completions`.
    Chat,
    /// OpenAI `/v1/completions`.
    Completions,
    /// OpenAI `/v1/responses`.
    Responses,
    /// Anthropic `/v1/messages`.
    Messages,
    /// SGLang's own `/generate`.
    Generate,
}

impl Dialect {
    /// Every dialect, with the name that the bindings use.
    pub const ALL: [(&'static str, Self); 5] = [
        ("chat", Self::Chat),
        ("completions", Self::Completions),
        ("responses", Self::Responses),
        ("messages", Self::Messages),
        ("generate", Self::Generate),
    ];

    /// The dialect of this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, dialect)| dialect)
    }

    /// Whether a stream's usage comes only to those who set `stream_options.include_usage`.
    ///
    /// The other three APIs end every stream with it.
    pub const fn usage_on_request(self) -> bool {
        matches!(self, Self::Chat | Self::Completions)
    }
}
