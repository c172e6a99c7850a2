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
    go_on(Vec::new(), text, tokens, block_bytes)
}

/// Spans of `text` and its `answer` as one chain, given those of `text`: what the next prompt of a
/// conversation begins with.
pub fn answered(
    prompt: &[Span],
    text: &[u8],
    answer: &[u8],
    answer_tokens: u64,
    block_bytes: usize,
) -> Vec<Span> {
    // The last block of the prompt may become a full one, so it is cut anew.
    let kept = prompt.len().saturating_sub(1);
    let mut rest = text[text.len().min(kept * block_bytes)..].to_vec();
    rest.extend_from_slice(answer);
    let tokens: u64 = prompt[kept..].iter().map(|span| span.tokens).sum();
    go_on(
        prompt[..kept].to_vec(),
        &rest,
        tokens + answer_tokens,
        block_bytes,
    )
}

/// Continues the chain `spans`, all full blocks, by `text` of `tokens` tokens.
fn go_on(mut spans: Vec<Span>, text: &[u8], tokens: u64, block_bytes: usize) -> Vec<Span> {
    let (mut id, mut rest, mut left) = (spans.last().map_or(0, |span| span.id), text, tokens);
    while left > 0 {
        let held = left.min(BLOCK_TOKENS);
        left -= held;
        let length = if left == 0 {
            rest.len()
        } else {
            block_bytes.min(rest.len())
        };
        let (block, after) = rest.split_at(length);
        id = link(digest(id, block), held);
        rest = after;
        spans.push(Span {
            id,
            tokens: held,
            partial: held < BLOCK_TOKENS,
        });
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
        assert_eq!(
            short.iter().map(|s| s.tokens).collect::<Vec<_>>(),
            [64, 64, 22]
        );
        assert_eq!(short[..2], long[..2]);
        assert_ne!(short[2].id, long[2].id);
        assert!(short[2].partial && !long[2].partial);
    }

    #[test]
    fn an_answered_prompt_is_the_beginning_of_the_next() {
        let text: Vec<u8> = (0..1_500_u32).map(|i| (i % 241) as u8).collect();
        let prompt = blocks(&text[..600], 150, 256);
        let whole = answered(&prompt, &text[..600], &text[600..1_000], 100, 256);
        assert_eq!(whole, blocks(&text[..1_000], 250, 256));
        let next = blocks(&text, 375, 256);
        assert_eq!(whole[..3], next[..3]);
        assert!(whole[3].partial);
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
        assert_eq!(
            blocks(b"hi", 200, 256)
                .iter()
                .map(|s| s.tokens)
                .sum::<u64>(),
            200
        );
        assert_eq!(blocks(&[1; 4_096], 10, 256).len(), 1);
        assert!(blocks(b"", 0, 256).is_empty());
    }
}
