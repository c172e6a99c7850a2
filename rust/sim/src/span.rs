//! Identity of a prompt: a chain of spans, each named by everything up to its end.
//!
//! Two prompts share a span exactly when they agree on every byte up to the end of it. The emulator
//! cuts text into spans of [`BLOCK_TOKENS`] tokens; the simulator, which knows its turns, makes one
//! span of each.

/// Tokens in a full block of text.
pub const BLOCK_TOKENS: u64 = 64;

/// One link of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Names this span and all before it, tokens and all: equal ids are equal prefixes.
    pub id: u64,
    /// Tokens in it.
    pub tokens: u64,
    /// A short last block: it gives way when a full block takes its place.
    pub partial: bool,
}

/// Mixes `value` into the chain `id`: a well-scrambled 64-bit step (Steele, Lea and Flood's
/// `SplitMix64` finalizer).
pub fn link(id: u64, value: u64) -> u64 {
    let mut z = (id ^ value).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Hash of `bytes`, continuing the chain `id`.
pub fn digest(id: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let tail = words.remainder();
    let mut id = link(id, bytes.len() as u64);
    for word in words {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        id = link(id.rotate_left(17), u64::from_le_bytes(eight));
    }
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    link(id.rotate_left(17), u64::from_le_bytes(last))
}

/// Spans of `text` that is said to hold `tokens` tokens, a full block being `block_bytes` long.
///
/// A text shorter than its tokens need is continued by empty blocks, a longer one ends in a longer
/// last block: the count of tokens is the caller's to state.
pub fn blocks(text: &[u8], tokens: u64, block_bytes: usize) -> Vec<Span> {
    let count = tokens.div_ceil(BLOCK_TOKENS);
    let mut spans = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    let (mut id, mut rest) = (0, text);
    for index in 0..count {
        let last = index + 1 == count;
        let length = if last { rest.len() } else { block_bytes.min(rest.len()) };
        let held = if last { tokens - index * BLOCK_TOKENS } else { BLOCK_TOKENS };
        let (block, after) = rest.split_at(length);
        id = link(digest(id, block), held);
        rest = after;
        spans.push(Span { id, tokens: held, partial: held < BLOCK_TOKENS });
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_text_keeps_the_full_blocks_of_its_beginning() {
        let text: Vec<u8> = (0..1_000_u32).map(|i| (i % 251) as u8).collect();
        let short = blocks(&text[..600], 150, 256);
        let long = blocks(&text, 250, 256);
        assert_eq!(short.iter().map(|s| s.tokens).collect::<Vec<_>>(), [64, 64, 22]);
        assert_eq!(short[..2], long[..2]);
        assert_ne!(short[2].id, long[2].id);
        assert!(short[2].partial && !long[2].partial);
    }

    #[test]
    fn one_changed_byte_changes_its_block_and_all_after() {
        let mut text = vec![7_u8; 1_024];
        let before = blocks(&text, 256, 256);
        text[300] = 8;
        let after = blocks(&text, 256, 256);
        assert_eq!(before[0], after[0]);
        assert!((1..4).all(|i| before[i].id != after[i].id));
    }

    #[test]
    fn trailing_zeros_are_not_the_same_as_none() {
        assert_ne!(digest(0, b"abc"), digest(0, b"abc\0"));
        assert_ne!(digest(0, b""), digest(0, b"\0\0\0\0\0\0\0\0"));
    }

    #[test]
    fn stated_tokens_stretch_a_short_text_and_squeeze_a_long_one() {
        assert_eq!(blocks(b"hi", 200, 256).iter().map(|s| s.tokens).sum::<u64>(), 200);
        assert_eq!(blocks(&[1; 4_096], 10, 256).len(), 1);
        assert!(blocks(b"", 0, 256).is_empty());
    }
}
