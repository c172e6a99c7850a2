//! A strict JSON reader that pulls tokens out of a whole document and keeps nothing.

mod block;
mod cursor;
mod number;
mod string;

pub(crate) use cursor::{Cursor, Member};
pub(crate) use number::Number;
pub(crate) use string::{Str, Text, unescape};
