//! Numbers: their grammar, and the one range check.

use super::Cursor;
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
