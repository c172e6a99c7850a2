//! Any answer, in any pieces, says the same and passes the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thunder_wire::Dialect;
use thunder_wire::response::{Passed, ResponseFacts, Scanner};

fn read<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    dialect: Dialect,
    stream: bool,
    strip: bool,
) -> (ResponseFacts, Vec<u8>) {
    let mut scanner = Scanner::new(dialect, stream, strip);
    let mut passed = Vec::new();
    for piece in pieces {
        match scanner.feed(piece) {
            Passed::Same => passed.extend_from_slice(piece),
            Passed::Changed(bytes) => passed.extend(bytes),
        }
    }
    passed.extend(scanner.finish());
    (scanner.facts().clone(), passed)
}

fuzz_target!(|input: &[u8]| {
    let Some((&[choice, size], answer)) = input.split_first_chunk() else {
        return;
    };
    let (_, dialect) = Dialect::ALL[usize::from(choice) % Dialect::ALL.len()];
    let size = usize::from(size).max(1);
    for (stream, strip) in [(false, false), (true, false), (true, true)] {
        let whole = read([answer].into_iter(), dialect, stream, strip);
        assert_eq!(read(answer.chunks(size), dialect, stream, strip), whole);
        assert!(strip || whole.1 == answer);
    }
});
