//! Golden traces: recorded journals, replayed; every decision and every reason must be the same.
//!
//! The format is that of the router's journal (tests/traces/README.md), so a trace can be recorded
//! from a running router and replayed by Python as well. A trace that differs is written to cargo's
//! temporary folder as it would read now: look at the difference, and if it is meant, put it in
//! place of the old one.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use common::config;
use serde_json::{Value, json};
use thunder_core::{
    Arrival, Decision, Memory, Millis, PolicyName, Rank, RequestId, Scheduler, SchedulerConfig,
    Seat, SeatFacts, Tenant, Usage, WorkerId,
};

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces")
}

/// The settings that the header names, over the defaults that the fixture pins.
fn settings(header: &Value) -> SchedulerConfig {
    let set = &header["scheduling"];
    let policy = match set["policy"].as_str() {
        Some("off") => PolicyName::Off,
        Some("paper") => PolicyName::Paper,
        _ => PolicyName::Adaptive,
    };
    let mut config = config(policy);
    let known = [
        "policy",
        "reservation_s",
        "time_slice_s",
        "growth_steps_new",
    ];
    for name in set.as_object().expect("a table").keys() {
        assert!(
            known.contains(&name.as_str()),
            "{name} is not read here yet"
        );
    }
    let millis = |name: &str| set[name].as_u64().map(|seconds| seconds * 1_000);
    config.reservation_ms = millis("reservation_s").or(config.reservation_ms);
    config.time_slice_ms = millis("time_slice_s").or(config.time_slice_ms);
    config.growth_steps_new = set["growth_steps_new"]
        .as_f64()
        .unwrap_or(config.growth_steps_new);
    config
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn small<T: TryFrom<u64>>(value: &Value) -> T {
    T::try_from(number(value)).ok().expect("a small number")
}

/// Lets one event happen. Its arguments have the names of `_core.pyi`.
fn happen(core: &mut Scheduler, event: &str, of: &Value, now: Millis) {
    let request = || RequestId(number(&of["request"]));
    let worker = || WorkerId(small(&of["worker"]));
    let program = || of["program"].as_str().expect("a name");
    let done = match event {
        "worker_up" => {
            let facts = SeatFacts {
                device_tokens: of["device_tokens"].as_u64(),
                host_tokens: number(&of["host_tokens"]),
                write_back: of["write_back"].as_bool().expect("a flag"),
                prefill_us_per_token: of["prefill_us_per_token"].as_f64().expect("a rate"),
                prefill_ns_per_token2: of["prefill_ns_per_token2"].as_f64().expect("a rate"),
                load_back_us_per_token: of["load_back_us_per_token"].as_f64().expect("a rate"),
                sessions: of["sessions"].as_bool().expect("a flag"),
            };
            core.worker_up(
                Seat::new(small(&of["worker"]), small(&of["rank"])),
                facts,
                now,
            )
        }
        "worker_unready" => core.worker_unready(worker(), now),
        "worker_draining" => core.worker_draining(worker(), now),
        "worker_down" => core.worker_down(worker(), now),
        "kv_flushed" => core.kv_flushed(worker(), now),
        "weight_sync_begin" => {
            core.weight_sync_begin(now);
            Ok(())
        }
        "weight_sync_end" => {
            core.weight_sync_end(now);
            Ok(())
        }
        "arrive" => {
            let arrival = Arrival {
                program: of["program"].as_str(),
                group: of["group"].as_str(),
                tenant: of["tenant"].as_str().map(|name| Tenant {
                    name,
                    weight: of["weight"]
                        .as_u64()
                        .map_or(1, |w| w.try_into().expect("small")),
                }),
                prompt_tokens: number(&of["prompt_tokens"]),
                prefix: of["prefix"].as_u64(),
            };
            core.arrive(request(), arrival, now)
        }
        "bounced" => core.bounced(request(), now),
        "progress" => core.progress(request(), number(&of["decoded_tokens"]), now),
        "finished" => {
            let usage = Usage {
                prompt_tokens: of["prompt_tokens"].as_u64(),
                completion_tokens: of["completion_tokens"].as_u64(),
                cached_tokens: of["cached_tokens"].as_u64(),
                cached_host_tokens: of["cached_host_tokens"].as_u64(),
                tool: of["tool"].as_str(),
            };
            core.finished(request(), usage, now)
        }
        "failed" => core.failed(request(), now),
        "cancelled" => core.cancelled(request(), now),
        "release" => {
            core.release(program(), now);
            Ok(())
        }
        "pause" => core.pause(program(), now),
        "restore" => core.restore(program(), now),
        "remember" => {
            let rank = of["rank"].as_u64().map(|_| Rank(small(&of["rank"])));
            let memory = Memory {
                group: of["group"].as_str(),
                context_tokens: number(&of["context_tokens"]),
                seat: rank.map(|rank| (worker(), rank)),
                idle_ms: number(&of["idle_ms"]),
                operator: of["operator"].as_bool().unwrap_or(false),
            };
            core.remember(program(), memory, now)
        }
        other => panic!("no event named {other}"),
    };
    done.unwrap_or_else(|error| panic!("{event} at {now}: {error}"));
}

/// A decision as the journal writes it: its kind, its fields, its reason.
fn row(decision: &Decision) -> Value {
    let reason = decision.reason().to_string();
    let at = |seat: &Seat| (seat.worker.0, seat.rank.0);
    match decision {
        Decision::Admit { request, seat, .. } => {
            let (worker, rank) = at(seat);
            json!(["admit", request.0, worker, rank, reason])
        }
        Decision::Hold { request, .. } => json!(["hold", request.0, reason]),
        Decision::Reject {
            request,
            kind,
            retry_after,
            ..
        } => json!(["reject", request.0, kind.as_str(), retry_after, reason]),
        Decision::Pause { program, seat, .. } => {
            let (worker, rank) = at(seat);
            json!(["pause", &**program, worker, rank, reason])
        }
        Decision::Restore { program, seat, .. } => {
            let (worker, rank) = at(seat);
            json!(["restore", &**program, worker, rank, reason])
        }
        Decision::Prepare {
            program,
            expected_wait,
            ..
        } => json!(["prepare", &**program, expected_wait, reason]),
        Decision::Expire { program, .. } => json!(["expire", &**program, reason]),
    }
}

/// The trace as it reads when its events are played now.
fn replay(trace: &str) -> String {
    let mut lines = trace.lines();
    let head = lines.next().expect("a header");
    let header: Value = serde_json::from_str(head).expect("JSON");
    assert_eq!(header["format"], "thunder-journal-1");
    let mut core = Scheduler::new(settings(&header)).expect("valid settings");
    let mut replayed = format!("{head}\n");
    for line in lines {
        let mut record: Value = serde_json::from_str(line).expect("JSON");
        let now = number(&record[1]);
        let event = record[2].as_str().expect("a name").to_owned();
        if event == "tick" {
            let decisions: Vec<Value> = core.tick(now).iter().map(row).collect();
            record[3] = json!(decisions);
        } else if event != "begin" {
            happen(&mut core, &event, &record[3], now);
        }
        core.check().expect("the books add up");
        writeln!(replayed, "{record}").expect("a string");
    }
    replayed
}

#[test]
fn recorded_events_bring_the_recorded_decisions() {
    let mut replayed = 0;
    for entry in fs::read_dir(traces()).expect("tests/traces") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|kind| kind != "jsonl") {
            continue;
        }
        let recorded = fs::read_to_string(&path).expect("readable");
        let now = replay(&recorded);
        if now != recorded {
            let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
            let place = place.join(path.file_name().expect("a file"));
            fs::write(&place, &now).expect("writable");
            let mut lines = recorded.lines().zip(now.lines());
            let (old, new) = lines.find(|(old, new)| old != new).expect("a difference");
            panic!(
                "{} decides otherwise:\n  was {old}\n  now {new}\nall of it: {}",
                path.display(),
                place.display()
            );
        }
        replayed += 1;
    }
    assert!(replayed >= 3, "one per policy at least");
}
