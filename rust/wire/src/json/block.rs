//! 64 bytes at a time: which of them are of a kind, as the bits of a word.
//!
//! Agents' prompts are source text: an escape every 40 bytes. A search that starts anew at each of
//! them (`memchr`) spends its time starting. A word of bits is computed once and then asked again
//! and again.

/// Bytes whose classes one word holds.
pub(super) const WIDTH: usize = 64;

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
        collect(&self.0, |byte| byte == b'"' || byte == b'\\' || byte < 0x20)
    }

    /// Bytes equal to this one.
    #[inline]
    pub(super) fn equal(&self, byte: u8) -> u64 {
        collect(&self.0, |other| other == byte)
    }

    /// Digits.
    #[inline]
    pub(super) fn digits(&self) -> u64 {
        collect(&self.0, |byte| byte.is_ascii_digit())
    }
}

/// A bit for each byte that passes the test, the first byte's lowest.
///
/// The first loop compiles to vector comparisons, 16 bytes an instruction on the plainest x86-64. A
/// multiplication then gathers the eight flags of a word in its top byte: flag `i` is moved by
/// `56 - 7 * i` bits, and no two of these moves meet.
#[inline]
fn collect(bytes: &[u8; WIDTH], test: impl Fn(u8) -> bool) -> u64 {
    let mut flags = [0; WIDTH];
    for (flag, &byte) in flags.iter_mut().zip(bytes) {
        *flag = u8::from(test(byte));
    }
    let (words, _) = flags.as_chunks::<8>();
    let bits = |word: &[u8; 8]| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    words
        .iter()
        .rev()
        .fold(0, |all, word| all << 8 | bits(word))
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
