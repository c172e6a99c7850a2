//! Any body is judged as `serde_json` judges it, and what is forwarded is still a body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use thunder_wire::request::{Optional, Splice, scan};
use thunder_wire::{BodyError, Dialect};

const ALL: [Optional; 4] = [
    Optional::SessionId,
    Optional::Rid,
    Optional::Priority,
    Optional::DpRank,
];

fuzz_target!(|input: &[u8]| {
    let Some((&choice, body)) = input.split_first() else {
        return;
    };
    let (_, dialect) = Dialect::ALL[usize::from(choice) % Dialect::ALL.len()];
    let is_json = serde_json::from_slice::<Value>(body).is_ok();
    match scan(body, dialect) {
        Ok(facts) => {
            assert!(is_json);
            for drop in [&ALL[..0], &ALL] {
                let splice = Splice {
                    include_usage: true,
                    drop,
                    session_id: Some("s\"\\\n"),
                    rid: Some("r"),
                    priority: Some(-1),
                    dp_rank: Some(1),
                };
                if let Some(rewrite) = facts.rewrite(body, &splice).expect("it is the same body") {
                    let forwarded = rewrite.to_vec();
                    assert_eq!(forwarded.len(), rewrite.size());
                    serde_json::from_slice::<Value>(&forwarded)
                        .expect("cutting and splicing leaves JSON");
                    let again = scan(&forwarded, dialect).expect("and a body");
                    assert_eq!(
                        (again.text_bytes, again.prefix),
                        (facts.text_bytes, facts.prefix)
                    );
                }
            }
        }
        Err(BodyError::NotAnObject) => assert!(is_json),
        Err(BodyError::Syntax { at, .. }) => assert!(!is_json && at <= body.len()),
        Err(_) => {}
    }
});
