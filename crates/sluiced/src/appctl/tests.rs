//! The rows of all commands, and the formats of replies.

use super::general::CommandList;
use super::*;
use crate::unixctl::Format;
use crate::work::Workers;
use serde_json::{Value, json};
use std::time::Duration;

/// The list of a switch in dummy mode before commands had help. Tools parse its lines.
const LISTED: &str = include_str!("list-commands.txt");

fn all() -> [Vec<&'static dyn Command>; 2] {
    [sorted([&table::switch(), table::COMMON, table::DUMMY].concat()), available_in_database()]
}

#[test]
fn every_command_has_a_line_of_help_and_its_own_name() {
    for commands in all() {
        for c in &commands {
            let (name, help, bounds) = (c.name(), c.help(), c.bounds());
            assert!(
                help.starts_with(|first: char| first.is_ascii_lowercase()),
                "{name}: {help}: begin with a verb, in lower case"
            );
            assert!(
                help.len() <= 90 && !help.contains('\n') && !help.ends_with('.'),
                "{name}: {help}: write one short line without a period"
            );
            assert!(bounds.start() <= bounds.end(), "{name}: bounds");
            assert!(
                c.usage().is_empty() == (*bounds.end() == 0) || name == "ovsdb-server/compact",
                "{name}: arguments"
            );
        }
        assert!(commands.windows(2).all(|pair| pair[0].name() < pair[1].name()), "names are unique");
    }
}

/// Commands whose usage states another number of words than they take, as in OVS; with least and greatest number.
const OTHER_NUMBERS: [(&str, usize, usize); 17] = [
    ("dpctl/ct-del-limits", 1, 3),
    ("dpctl/ct-set-limits", 1, 4096),
    ("dpctl/ct-stats-show", 0, 4),
    ("dpctl/dump-flows", 0, 8),
    ("dpctl/get-flow", 1, 5),
    ("dpctl/parse-actions", 1, 64),
    ("dpif-netdev/miniflow-parser-set", 1, 4),
    ("dpif-netdev/pmd-perf-log-set", 0, 10),
    ("dpif-netdev/subtable-lookup-prio-set", 2, 2),
    ("dpif/dump-flows", 1, 4),
    ("dpif/get-flow", 2, 5),
    ("ofproto/trace", 1, 64),
    ("ofproto/trace-packet-out", 2, 64),
    ("ovsdb-server/compact", 0, 1),
    ("set-options", 2, 2),
    ("tnl/egress_port_range", 0, 2),
    ("vlog/set", 0, 64),
];

/// Least and greatest number of words that a usage states; the latter is `None` for repeated words.
fn stated(usage: &str) -> (usize, Option<usize>) {
    let (mut least, mut most, mut depth) = (0, 0, 0);
    let mut is_alternative = false;
    for word in usage.split_whitespace() {
        if word == "|" {
            is_alternative = true;
            continue;
        }
        let inner = word.trim_start_matches(['[', '{']);
        depth += word[..word.len() - inner.len()].matches('[').count();
        if !std::mem::take(&mut is_alternative) {
            most += 1;
            least += usize::from(depth == 0);
        }
        depth = depth + inner.matches('[').count() - inner.matches(']').count();
    }
    (least, Some(most).filter(|_| !usage.contains("...")))
}

#[test]
fn commands_take_as_many_words_as_their_usage_states() {
    for c in all().concat() {
        let (name, (least, most)) = (c.name(), c.bounds().into_inner());
        let agree = match stated(&c.usage()) {
            (stated, Some(end)) => (least, most) == (stated, end),
            (stated, None) => least == stated,
        };
        let is_listed = OTHER_NUMBERS.contains(&(name, least, most));
        // The switch lists the argument of `compact`, and the server takes it unlisted.
        let is_both = name == "ovsdb-server/compact" && agree;
        assert!(agree != is_listed || is_both, "{name}: {}: {least} to {most}", c.usage());
    }
}

#[test]
fn list_commands_keeps_its_lines() {
    let [switch, _] = all();
    let now = CommandList(switch).text();
    let mut lines = now.lines();
    for line in LISTED.lines() {
        assert!(lines.any(|l| l == line), "{line:?} is missing, or not in its place");
    }
}

/// The reply to a client of that format.
fn printed(reply: Reply, format: Format) -> Result<Value, String> {
    match reply.print(format, &Workers::default()) {
        Answer::Now(text) => text.map(Value::from),
        Answer::Json(value) => Ok(value),
        Answer::Later(Wait::Work(work)) => parts(&work),
        Answer::Later(_) | Answer::Format(_) => panic!("no reply of a value"),
    }
}

/// The parts of a reply, put together.
fn parts(work: &Work) -> Result<Value, String> {
    let mut json = Vec::new();
    for _ in 0..60_000 {
        match work.part() {
            None => std::thread::sleep(Duration::from_millis(1)),
            Some(ReplyPart::Json(part)) => json.extend(part),
            Some(ReplyPart::Text(_)) => panic!("a part of a text"),
            Some(ReplyPart::End(Ok(_))) if !json.is_empty() => {
                return Ok(serde_json::from_slice(&json).unwrap());
            }
            Some(ReplyPart::End(text)) => return text.map(Value::from),
        }
    }
    panic!("no end of the reply")
}

/// The numbers below a bound.
struct Numbers(u32);

impl TypedReply for Numbers {
    fn text(&self) -> String {
        (0..self.0).map(|n| format!("{n}\n")).collect()
    }

    fn json(&self) -> Json<'_> {
        Json::Elements(Box::new((0..self.0).map(Value::from)))
    }
}

#[test]
fn a_value_prints_as_text_and_as_json() {
    for n in [0, 1, 3] {
        let text: String = (0..n).map(|n| format!("{n}\n")).collect();
        let numbers: Value = (0..n).collect();
        for of in [|n| Reply::Value(Box::new(Numbers(n))), |n| Reply::Long(Box::new(Numbers(n)))] {
            assert_eq!(printed(of(n), Format::Text), Ok(json!(text)));
            assert_eq!(printed(of(n), Format::Json), Ok(numbers.clone()));
        }
    }
    // Longer than a part.
    let many = 200_000;
    assert_eq!(printed(Reply::Long(Box::new(Numbers(many))), Format::Json), Ok((0..many).collect()));
    // Text has the same form for both; the control socket wraps it.
    for format in [Format::Text, Format::Json] {
        assert_eq!(printed(Reply::from("text".to_string()), format), Ok(json!("text")));
        assert_eq!(printed(Reply::Error("why".to_string()), format), Err("why".to_string()));
    }
}

#[test]
fn commands_are_an_object_of_their_arguments() {
    let [mut commands, _] = all();
    commands.retain(|c| c.name().starts_with("fdb/stats"));
    let list = || Reply::Value(Box::new(CommandList(commands.clone())));
    let text =
        "The available commands are:\n  fdb/stats-clear         [bridge]\n  fdb/stats-show          bridge\n";
    assert_eq!(printed(list(), Format::Text), Ok(json!(text)));
    let object = json!({ "fdb/stats-clear": "[bridge]", "fdb/stats-show": "bridge" });
    assert_eq!(printed(list(), Format::Json), Ok(object));
}
