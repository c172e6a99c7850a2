//! Numbers: their grammar, and the one range check.

use super::Cursor;
use super::block::Block;
use crate::BodyError;

/// Where a number stands.
#[derive(Clone, Copy)]
pub(crate) struct Number {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Neither fraction nor exponent.
    pub(crate) integral: bool,
}

/// With fewer characters than this and no exponent, a number is below the largest `f64`.
const SURELY_FINITE: usize = 300;

impl Cursor<'_> {
    /// Takes the number of which [`peek`](Self::peek) saw the first byte.
    pub(crate) fn number(&mut self) -> Result<Number, BodyError> {
        let start = self.at;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
            if matches!(self.byte(), Some(b'0'..=b'9')) {
                return self.fail("a number with a leading zero");
            }
        } else {
            self.digits()?;
        }
        let mut number = Number {
            start,
            end: self.at,
            integral: true,
        };
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
            number.integral = false;
        }
        let exponent = matches!(self.byte(), Some(b'e' | b'E'));
        if exponent {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
            number.integral = false;
        }
        number.end = self.at;
        if (exponent || number.end - start > SURELY_FINITE) && !self.is_finite(number) {
            return Err(BodyError::Syntax {
                problem: "a number out of range",
                at: start,
            });
        }
        Ok(number)
    }

    /// Takes the numbers of an array from the one that begins here, as long as they are plain: no
    /// sign, no fraction, and nothing but a comma and perhaps a space before the next. Stops before
    /// the comma after the last one taken. How many there were.
    ///
    /// Prompts of 30,000 token ids are common in reinforcement learning, and this reads some
    /// twelve of them a step.
    pub(crate) fn plain_numbers(&mut self) -> usize {
        let mut count = 0;
        let mut begin = self.at;
        while self.bytes.get(begin).is_some_and(u8::is_ascii_digit) {
            let block = Block::at(self.bytes, begin);
            let digits = block.digits();
            let commas = block.equal(b',');
            let spaces = block.equal(b' ');
            let foreign = (!(digits | commas | spaces)).trailing_zeros();
            let known = u64::MAX.checked_shr(64 - foreign).unwrap_or_default();
            let Some(last) = (commas & known).checked_ilog2() else {
                break;
            };
            let taken = u64::MAX >> (63 - last);
            let after_digit = digits << 1;
            let leading_zeros = block.equal(b'0') & !after_digit & digits >> 1;
            let misplaced = (commas & !after_digit) | (spaces & !(commas << 1)) | leading_zeros;
            if misplaced & taken != 0 {
                break;
            }
            count += (commas & taken).count_ones() as usize;
            self.at = begin + last as usize;
            begin = self.at + 1;
            begin += usize::from(self.bytes.get(begin) == Some(&b' '));
        }
        count
    }

    fn digits(&mut self) -> Result<(), BodyError> {
        let start = self.at;
        while matches!(self.byte(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            self.fail("expected a digit")
        } else {
            Ok(())
        }
    }

    fn is_finite(&self, number: Number) -> bool {
        std::str::from_utf8(self.span(number.start, number.end))
            .ok()
            .and_then(|text| text.parse::<f64>().ok())
            .is_some_and(f64::is_finite)
    }
}
