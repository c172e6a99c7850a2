//! The verdict on every document is that of `serde_json`.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{Choices, spell, value};
use proptest::prelude::*;
use serde_json::Value;
use thunder_wire::request::scan;
use thunder_wire::{BodyError, Dialect};

/// Whether the scanner takes this for JSON. None: it stopped at something else that is wrong.
fn verdict(document: &[u8], dialect: Dialect) -> Option<bool> {
    match scan(document, dialect) {
        Ok(_) | Err(BodyError::NotAnObject) => Some(true),
        Err(BodyError::Syntax { at, .. }) => {
            assert!(at <= document.len(), "{at} is beyond the end");
            Some(false)
        }
        Err(_) => None,
    }
}

fn agree(document: &[u8]) -> Result<(), TestCaseError> {
    let expected = serde_json::from_slice::<Value>(document);
    for (name, dialect) in Dialect::ALL {
        if let Some(found) = verdict(document, dialect) {
            prop_assert_eq!(
                found,
                expected.is_ok(),
                "{}: {} {:?}",
                name,
                document.escape_ascii(),
                expected
            );
        }
    }
    Ok(())
}

/// Pieces of JSON, whole and broken.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\"a\"",
    "\"model\"",
    "\"messages\"",
    "\"input_ids\"",
    "\"prompt\"",
    "\"tools\"",
    "\"extra_body\":{",
    "\"nvext\":{\"agent_context\":{",
    "\"\\u00e9\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ude00\"",
    "\"\\ud83d\\u0041\"",
    "\"\\x\"",
    "\"\\u12\"",
    "\\",
    "\u{e9}",
    "\u{4f60}",
    "0",
    "-0",
    "-",
    "01",
    "1.5",
    "1.",
    ".5",
    "1e5",
    "1E+5",
    "1e",
    "1e999",
    "-1e-999",
    "12345678901234567890",
    "true",
    "false",
    "null",
    "nul",
    "tru",
    "NaN",
    " ",
    "\n",
    "\t",
    "\r",
    "\u{b}",
    "\u{a0}",
    "\0",
    "\u{feff}",
    "1,2,3",
    "1, 2, 3",
    "1 ,2",
    "00",
    "1,,2",
    "1, ,2",
];

proptest! {
    #[test]
    fn a_valid_document_in_any_spelling_is_accepted(value in value(), seed: u64) {
        let document = spell(&value, &mut Choices(seed));
        prop_assert!(serde_json::from_str::<Value>(&document).is_ok());
        agree(document.as_bytes())?;
    }

    #[test]
    fn a_damaged_document_is_judged_as_serde_judges_it(
        value in value(),
        seed: u64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>(), prop::sample::select(PIECES)), 1..4),
    ) {
        let mut document = spell(&value, &mut Choices(seed)).into_bytes();
        for (index, kind, byte, piece) in damage {
            let at = index.index(document.len() + 1);
            match kind {
                0 if at < document.len() => document[at] = byte,
                1 if at < document.len() => { document.remove(at); }
                2 => document.truncate(at),
                _ => { document.splice(at..at, piece.bytes()); }
            }
        }
        agree(&document)?;
    }

    #[test]
    fn a_heap_of_pieces_is_judged_as_serde_judges_it(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..24)) {
        agree(pieces.concat().as_bytes())?;
        agree(format!("{{\"input_ids\":[{}]}}", pieces.concat()).as_bytes())?;
        agree(format!("{{\"messages\":[{{\"content\":{}}}]}}", pieces.concat()).as_bytes())?;
    }

    #[test]
    fn a_list_of_numbers_is_judged_as_serde_judges_it(
        numbers in prop::collection::vec(prop::sample::select(vec!["0", "7", "42", "151643", "00", "07", "-1", ""]), 0..40),
        separators in prop::collection::vec(prop::sample::select(vec![",", ", ", ",  ", " ,", " ", ",,"]), 40),
        plain in any::<bool>(),
    ) {
        let mut list = String::new();
        for (number, separator) in numbers.iter().zip(separators) {
            // Mostly sound lists, so that the fast path is on its way when it meets the odd one.
            list.push_str(if plain && number.len() != 2 { "5" } else { number });
            list.push_str(if plain && separator.len() > 1 { ", " } else { separator });
        }
        agree(format!("{{\"input_ids\":[{list}1]}}").as_bytes())?;
    }

    #[test]
    fn any_bytes_are_judged_as_serde_judges_them(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        agree(&bytes)?;
        agree(&[b"{\"a\":\"", &bytes[..], b"\"}"].concat())?;
    }

    #[test]
    fn a_list_of_numbers_in_any_spelling_is_counted_exactly(
        numbers in prop::collection::vec(0..200_000u32, 0..300),
        separators in prop::collection::vec(prop::sample::select(vec![",", ", ", ",\n", " , "]), 1..4),
    ) {
        let mut list = String::new();
        for (index, number) in numbers.iter().enumerate() {
            if index > 0 {
                list.push_str(separators[index % separators.len()]);
            }
            list.push_str(&number.to_string());
        }
        for body in [format!("{{\"input_ids\":[{list}]}}"), format!("{{\"input_ids\": [[{list}], [{list} ]]}}")] {
            let lists = if body.contains("[[") { 2 } else { 1 };
            let facts = scan(body.as_bytes(), Dialect::Generate).unwrap();
            prop_assert_eq!(facts.token_ids, lists * numbers.len() as u64);
        }
    }
}

#[test]
fn corner_cases_are_judged_as_serde_judges_them() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    let mut documents: Vec<Vec<u8>> = Vec::new();
    for depth in [126, 127, 128, 129, 100_000] {
        documents.push(nested("[", "]", depth).into_bytes());
        documents.push(nested("{\"a\":", "}", depth).into_bytes());
        documents.push(nested("{\"messages\":[", "]}", depth / 2).into_bytes());
        documents.push("[".repeat(depth).into_bytes());
    }
    for number in [
        "1e308",
        "1.7976931348623157e308",
        "1e309",
        "-1e309",
        "1e-400",
        "0e999999999999",
        "1e99999999999",
    ] {
        documents.push(format!("{{\"x\":{number}}}").into_bytes());
    }
    documents.push(format!("[{}]", "9".repeat(308)).into_bytes());
    documents.push(format!("[{}]", "9".repeat(400)).into_bytes());
    documents.push(format!("[0.{}1]", "0".repeat(400)).into_bytes());
    for utf8 in [
        &b"\xff"[..],
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe4\xbd",
        b"\xf0\x9f\x98\x80",
        b"\x7f",
    ] {
        documents.push([b"{\"a\":\"", utf8, b"\"}"].concat());
        documents.push([&b"{\"a\":\""[..], &[b'x'; 61], utf8, b"\"}"].concat());
        documents.push([utf8, b"{}"].concat());
    }
    for tail in ["", " ", "\n\n", "x", "{}", ",", "\0"] {
        documents.push(format!("{{\"a\":1}}{tail}").into_bytes());
    }
    documents.push(b"\xef\xbb\xbf{}".to_vec());
    documents.push(b" \r\n\t{} ".to_vec());
    documents.push(b"".to_vec());
    documents.push(b"   ".to_vec());
    for control in 0..0x21u8 {
        documents.push([b"{\"a\":\"", &[control][..], b"\"}"].concat());
        documents.push([b"{\"a\":", &[control][..], b"1}"].concat());
    }
    for list in [
        "1,01,2",
        "1, 2 3,4",
        "1  ,2",
        "1,  2,3",
        "1,2,",
        ",1,2",
        "1 2,3",
        "1,2 ,3",
        "1,-2,3",
        "1,2.5,3,4",
        "1,0,2",
    ] {
        documents.push(format!("{{\"input_ids\":[{list}]}}").into_bytes());
    }
    for length in 56..72 {
        documents.push(format!("{{\"a\":\"{}\\\"\"}}", "x".repeat(length)).into_bytes());
        documents.push(format!("{{\"a\":\"{}\\\\\"}}", "x".repeat(length)).into_bytes());
        documents.push(format!("{{\"a\":\"{}\\u00e9\"}}", "x".repeat(length)).into_bytes());
        documents.push(format!("{{\"a\":\"{}\\ud83d\\ude00\"}}", "x".repeat(length)).into_bytes());
        documents.push(format!("{{\"a\":\"{}\\", "x".repeat(length)).into_bytes());
        documents.push(format!("{{\"a\":\"{}\n\"}}", "x".repeat(length)).into_bytes());
    }
    for document in documents {
        agree(&document).unwrap();
    }
}

#[test]
fn a_syntax_error_says_what_and_where() {
    for (document, message) in [
        (
            "{\"a\":1,}",
            "the body is not valid JSON: expected a key at byte 7",
        ),
        (
            "{\"a\":tru}",
            "the body is not valid JSON: expected a value at byte 5",
        ),
        (
            "{\"a\":\"\\q\"}",
            "the body is not valid JSON: an invalid escape at byte 6",
        ),
        (
            "{\"a\":\"\\ud800\"}",
            "the body is not valid JSON: a lone surrogate at byte 6",
        ),
        (
            "{\"a\":1",
            "the body is not valid JSON: unexpected end at byte 6",
        ),
        (
            "{\"a\":1}}",
            "the body is not valid JSON: characters after the document at byte 7",
        ),
        (
            "{\"a\":01}",
            "the body is not valid JSON: a number with a leading zero at byte 6",
        ),
        (
            "{\"a\":1e999}",
            "the body is not valid JSON: a number out of range at byte 5",
        ),
        ("[1]", "the body must be a JSON object"),
        ("\"x\"", "the body must be a JSON object"),
    ] {
        assert_eq!(
            scan(document.as_bytes(), Dialect::Chat)
                .unwrap_err()
                .to_string(),
            message,
            "{document}"
        );
    }
}
