//! 64 bytes at a time: which of them are of a kind, as the bits of a word.
//!
//! Agents' prompts are source text: an escape every 40 bytes. A search that starts anew at each of
//! them (`memchr`) spends its time starting. A word of bits is computed once and then asked again
//! and again.

use wide::u8x16;

/// Bytes whose classes one word holds.
pub(super) const WIDTH: usize = 64;

/// Bytes that one instruction compares: what the plainest x86-64 and aarch64 can do.
const LANE: usize = 16;

/// 64 bytes of a document.
pub(super) struct Block([u8; WIDTH]);

impl Block {
    /// The block that begins here; past the end of the document it is filled with spaces.
    #[inline]
    pub(super) fn at(bytes: &[u8], start: usize) -> Self {
        let rest = bytes.get(start..).unwrap_or_default();
        if let Some(block) = rest.first_chunk() {
            return Self(*block);
        }
        let mut block = [b' '; WIDTH];
        block[..rest.len()].copy_from_slice(rest);
        Self(block)
    }

    /// Quotes, backslashes and control characters: all that matters inside a string.
    #[inline]
    pub(super) fn specials(&self) -> u64 {
        self.collect(|lane| equal(lane, b'"') | equal(lane, b'\\') | at_most(lane, 0x1F))
    }

    /// Bytes equal to this one.
    #[inline]
    pub(super) fn equal(&self, byte: u8) -> u64 {
        self.collect(|lane| equal(lane, byte))
    }

    /// Digits.
    #[inline]
    pub(super) fn digits(&self) -> u64 {
        self.collect(|lane| at_most(lane - u8x16::splat(b'0'), 9))
    }

    /// A bit for each byte for which the test gave all ones, the first byte's lowest.
    #[inline]
    fn collect(&self, test: impl Fn(u8x16) -> u8x16) -> u64 {
        let (lanes, _) = self.0.as_chunks::<LANE>();
        let bits = |lane: &[u8; LANE]| test(u8x16::new(*lane)).move_mask().cast_unsigned();
        lanes
            .iter()
            .rev()
            .fold(0, |all, lane| all << LANE | u64::from(bits(lane)))
    }
}

#[inline]
fn equal(lane: u8x16, byte: u8) -> u8x16 {
    lane.cmp_eq(u8x16::splat(byte))
}

#[inline]
fn at_most(lane: u8x16, byte: u8) -> u8x16 {
    lane.min(u8x16::splat(byte)).cmp_eq(lane)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one_by_one(bytes: &[u8; WIDTH], test: impl Fn(u8) -> bool) -> u64 {
        bytes
            .iter()
            .rev()
            .fold(0, |bits, &byte| bits << 1 | u64::from(test(byte)))
    }

    proptest! {
        #[test]
        fn each_class_is_what_a_look_at_every_byte_finds(bytes in any::<[u8; WIDTH]>(), byte: u8) {
            let block = Block(bytes);
            let is_special = |byte| byte < 0x20 || byte == b'"' || byte == b'\\';
            prop_assert_eq!(block.specials(), one_by_one(&bytes, is_special));
            prop_assert_eq!(block.digits(), one_by_one(&bytes, |byte| byte.is_ascii_digit()));
            prop_assert_eq!(block.equal(byte), one_by_one(&bytes, |other| other == byte));
        }
    }

    #[test]
    fn a_block_at_the_end_is_filled_with_spaces() {
        let block = Block::at(b"..\"1", 2);
        assert_eq!(block.specials(), 1);
        assert_eq!(block.digits(), 2);
        assert_eq!(block.equal(b' '), !3);
        assert_eq!(Block::at(b"x", 9).equal(b' '), !0);
    }
}
