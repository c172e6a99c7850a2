//! The worked example of docs/how-a-decision-is-made.md: its numbers are these.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::Lab;
use thunder_core::{Decision, PolicyName, RequestId, Tokens};

/// Plays the example, and writes down what happens as the page does.
struct Page {
    lab: Lab,
    /// Who asked: the requests of each program, in order.
    asked: Vec<(RequestId, &'static str)>,
    text: String,
}

impl Page {
    fn asks(&mut self, program: &'static str, prompt: Tokens) {
        let request = self.lab.ask(program, prompt);
        self.asked.push((request, program));
        let what = format!("{program} asks {}", grouped(prompt));
        self.decide(&what);
    }

    fn answers(&mut self, program: &'static str, prompt: Tokens, completion: Tokens, last: bool) {
        let request = self.asked.iter().rev().find(|(_, who)| *who == program);
        let (request, _) = *request.expect("it asked");
        self.lab.answer(request, prompt, completion);
        let mut what = format!("{program} answers {} + {completion}", grouped(prompt));
        if last {
            self.lab.core.release(program, self.lab.now);
            what += ", and is released";
        }
        self.decide(&what);
    }

    fn decide(&mut self, what: &str) {
        let now = self.lab.now;
        let time = format!("{:>2}.{} s", now / 1_000, now % 1_000 / 100);
        let decisions = self.lab.tick();
        let mut lines = Vec::new();
        for decision in &decisions {
            let (verb, request) = match decision {
                Decision::Admit { request, .. } => ("admit", request),
                Decision::Hold { request, .. } => ("hold", request),
                _ => continue,
            };
            let asked = self.asked.iter().find(|(id, _)| id == request);
            let (_, who) = asked.expect("known");
            lines.push(format!("{verb} {who}"));
            let reason = decision.reason();
            let line = lines.last_mut().expect("just pushed");
            *line = format!("{line:<9}{reason}");
        }
        let short = what.len() <= 14;
        if lines.is_empty() || !short {
            writeln!(self.text, "{time}  {what}").expect("a string");
        }
        for (at, line) in lines.iter().enumerate() {
            let what = if at == 0 && short { what } else { "" };
            writeln!(self.text, "{time}  {what:<14}{line}").expect("a string");
        }
    }
}

fn grouped(tokens: Tokens) -> String {
    if tokens < 1_000 {
        tokens.to_string()
    } else {
        format!("{},{:03}", tokens / 1_000, tokens % 1_000)
    }
}

#[test]
fn the_pages_numbers_are_what_the_scheduler_says() {
    let mut page = Page {
        lab: Lab::with(PolicyName::Adaptive, 10_000),
        asked: Vec::new(),
        text: String::new(),
    };
    page.asks("a", 4_000);
    page.asks("b", 3_000);
    page.asks("c", 2_900);
    page.lab.wait(2_000);
    page.answers("a", 4_000, 200, false);
    page.asks("d", 2_300);
    page.lab.wait(500);
    page.asks("a", 4_300);
    page.lab.wait(1_500);
    page.answers("b", 3_000, 100, true);
    page.lab.run_for(57_000);
    page.asks("e", 100);
    page.lab.wait(3_000);
    page.answers("a", 4_300, 100, true);

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let docs = fs::read_to_string(docs.join("how-a-decision-is-made.md")).expect("the page");
    let example = docs
        .split("## A worked example")
        .nth(1)
        .expect("its section");
    let block = example.split("```\n").nth(1).expect("its block");
    assert_eq!(block, page.text);
}
