//! Taking members out of an object, with the right comma.

use crate::json::Member;

use super::fields::Optional;

/// A member that may be taken out of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cuttable {
    /// Its place among all members of the object.
    index: usize,
    start: usize,
    end: usize,
    comma_before: Option<usize>,
    comma_after: Option<usize>,
    /// None: it goes in any case.
    pub(super) optional: Option<Optional>,
    /// Its value is null, so the client did not really set it.
    pub(super) is_null: bool,
}

/// Notes members while an object is read.
#[derive(Default)]
pub(super) struct Cutter {
    pub(super) cuttable: Vec<Cuttable>,
    /// Members read so far.
    pub(super) members: usize,
}

impl Cutter {
    /// A member begins: its comma also follows the one before.
    pub(super) fn begin(&mut self, member: Member) {
        if let Some(last) = self.cuttable.last_mut()
            && last.index + 1 == self.members
        {
            last.comma_after = member.comma;
        }
        self.members += 1;
    }

    /// The member that began last may go. Its value ends here.
    pub(super) fn mark(
        &mut self,
        member: Member,
        end: usize,
        optional: Option<Optional>,
        is_null: bool,
    ) {
        self.cuttable.push(Cuttable {
            index: self.members - 1,
            start: member.start,
            end,
            comma_before: member.comma,
            comma_after: None,
            optional,
            is_null,
        });
    }
}

/// The spans that take these members out, in order.
///
/// Neighbours go as one span, together with the comma after them, or, at the end of the object,
/// with the one before them.
pub(super) fn spans<'a>(members: impl Iterator<Item = &'a Cuttable>) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut members = members.peekable();
    while let Some(first) = members.next() {
        let mut last = first;
        while let Some(next) = members.next_if(|next| next.index == last.index + 1) {
            last = next;
        }
        spans.push(match (first.comma_before, last.comma_after) {
            (_, Some(after)) => (first.start, after + 1),
            (Some(before), None) => (before, last.end),
            (None, None) => (first.start, last.end),
        });
    }
    spans
}
