//! Running programs that are to be paused at the end of their turn.

use std::collections::BTreeSet;

use crate::book::Book;
use crate::ids::{Seat, Tokens};
use crate::program::ProgramKey;

/// Marks exactly these of a seat's running programs, and nobody else.
pub(super) fn draw(book: &mut Book, seat: Seat, wanted: &[(Tokens, ProgramKey)]) {
    let Some(worker) = book.workers.get(&seat) else {
        return;
    };
    let wanted: BTreeSet<ProgramKey> = wanted.iter().map(|(_, key)| *key).collect();
    let marked: BTreeSet<ProgramKey> = worker.marked.iter().map(|(_, key)| key).collect();
    for key in wanted.symmetric_difference(&marked) {
        book[*key].marked = wanted.contains(key);
        book.recharge(*key);
    }
}
